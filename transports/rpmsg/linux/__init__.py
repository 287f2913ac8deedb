"""The lowest interface on Linux: rpmsg character devices, dma-buf heaps, remoteproc."""
