"""The Goke GK7206 NPU: by the vendor's library, or by the nodes of its driver."""
