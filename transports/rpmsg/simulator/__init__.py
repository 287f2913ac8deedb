"""A simulated DSP: the c7x_compute firmware as a clocked state machine, behind sockets or in virtual time."""
