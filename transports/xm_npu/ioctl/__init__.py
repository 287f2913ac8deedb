"""The driver's own nodes: `/dev/npu.0` and `/dev/mmz_userdev`."""
