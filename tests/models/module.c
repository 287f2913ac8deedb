/* A module as a linker makes it: addresses differ from offsets, and code and data lie apart. */

extern int host_printf(const char *text);

unsigned int _binary_tvm_dsp_io_meta_start[10] = {0x4D4F4954, 1, 2, 1, 100, 0, 8, 0, 0, 0};

__asm__(
    ".section .rodata.weights,\"a\"\n"
    ".globl _binary_weights_bin_start\n_binary_weights_bin_start: .zero 100\n"
    ".globl _binary_weights_bin_end\n_binary_weights_bin_end:\n"
    ".globl _binary_weights_bin_size\n_binary_weights_bin_size: .long 100\n"
    ".section .dsp_syms_out,\"\"\n"
    ".asciz \"dsp_syms.out\"\n"
    ".text\n");

int cg_main_dsp(void *in, int count, void *constants, void *out)
{
    (void)in, (void)constants, (void)out;
    return count + host_printf("here");
}
