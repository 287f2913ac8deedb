"""TI C7x DSPs: the c7x_compute firmware over rpmsg, on the real device nodes or on a simulated DSP."""
