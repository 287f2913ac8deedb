/* Prints what the kernel's own headers say of the ioctls that the package makes. */
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/rpmsg.h>
#include <stddef.h>
#include <stdio.h>

/* Of TI's kernels alone: a descriptor in, an address for the processor out. */
struct attachment {
	__u32 fd;
	__u64 da;
};

int main(void)
{
	printf("RPMSG_CREATE_EPT %u\n", (unsigned)RPMSG_CREATE_EPT_IOCTL);
	printf("RPMSG_DESTROY_EPT %u\n", (unsigned)RPMSG_DESTROY_EPT_IOCTL);
	printf("DMA_HEAP_ALLOC %u\n", (unsigned)DMA_HEAP_IOCTL_ALLOC);
	printf("DMA_BUF_SYNC %u\n", (unsigned)DMA_BUF_IOCTL_SYNC);
	printf("RPROC_DMA_BUF_ATTACH %u\n", (unsigned)_IOWR(0xB7, 0, struct attachment));
	printf("SYNC_READ %u\n", (unsigned)DMA_BUF_SYNC_READ);
	printf("SYNC_WRITE %u\n", (unsigned)DMA_BUF_SYNC_WRITE);
	printf("SYNC_START %u\n", (unsigned)DMA_BUF_SYNC_START);
	printf("SYNC_END %u\n", (unsigned)DMA_BUF_SYNC_END);
	printf("ENDPOINT_INFO.size %zu\n", sizeof(struct rpmsg_endpoint_info));
	printf("ENDPOINT_INFO.offsets %zu %zu %zu\n", offsetof(struct rpmsg_endpoint_info, name),
	       offsetof(struct rpmsg_endpoint_info, src), offsetof(struct rpmsg_endpoint_info, dst));
	printf("ALLOCATION.size %zu\n", sizeof(struct dma_heap_allocation_data));
	printf("ALLOCATION.offsets %zu %zu %zu %zu\n", offsetof(struct dma_heap_allocation_data, len),
	       offsetof(struct dma_heap_allocation_data, fd),
	       offsetof(struct dma_heap_allocation_data, fd_flags),
	       offsetof(struct dma_heap_allocation_data, heap_flags));
	printf("SYNC.size %zu\n", sizeof(struct dma_buf_sync));
	printf("SYNC.offsets %zu\n", offsetof(struct dma_buf_sync, flags));
	printf("ATTACHMENT.size %zu\n", sizeof(struct attachment));
	printf("ATTACHMENT.offsets %zu %zu\n", offsetof(struct attachment, fd), offsetof(struct attachment, da));
	return 0;
}
