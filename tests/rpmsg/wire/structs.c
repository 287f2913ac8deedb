/* Every message as packed C structs, filled with values that the tests know; prints "name hex" lines. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PACKED __attribute__((packed))
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define DESCRIPTORS 5

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the DSP is little-endian");

typedef struct PACKED {
    uint32_t type, seq, len;
    int32_t status;
} header;

typedef struct PACKED {
    uint64_t data_addr, data_size;
    int32_t ndim, dtype_code, dtype_bits, reserved;
    int64_t shape[6];
} descriptor;

typedef struct PACKED {
    header h;
    uint32_t version, uptime_ms;
} ping_resp;

typedef struct PACKED {
    header h;
    uint32_t version, uptime_ms, jobs_completed, jobs_failed;
} status_resp;

typedef struct PACKED {
    header h;
    uint32_t elf_size, flags, rsvd[2];
} dyn_load;

typedef struct PACKED {
    header h;
    uint32_t handle, text_size, data_size, oom_requested, oom_free, oom_total;
} dyn_load_resp_2;

typedef struct PACKED {
    dyn_load_resp_2 v2;
    uint64_t io_input_bytes, io_output_bytes;
    uint32_t io_num_inputs, io_num_outputs, io_flags;
} dyn_load_resp_3;

typedef struct PACKED {
    header h;
    uint32_t id;
} unload;

typedef struct PACKED {
    header h;
    uint32_t weights_size, flags, rsvd[2];
} model_load;

typedef struct PACKED {
    header h;
    uint32_t model_id, num_constants, oom_requested, oom_free, oom_total;
} model_load_resp;

typedef struct PACKED {
    uint64_t input_dsp_addr, input_size, result_dsp_addr, result_size;
} memory;

typedef struct PACKED {
    header h;
    uint32_t handle, model_id, n, flags;
} infer_2;

typedef struct PACKED {
    infer_2 v2;
    memory m;
} infer_3;

typedef struct PACKED {
    infer_2 v2;
    uint64_t descs_addr;
    uint32_t descs_size, rsvd;
} infer_large_2;

typedef struct PACKED {
    infer_large_2 v2;
    memory m;
} infer_large_3;

typedef struct PACKED {
    header h;
    int32_t return_value;
    uint64_t cycles;
    uint32_t n_out, printf_size;
    uint64_t descs_addr;
    uint32_t descs_size, oom_requested, oom_free, oom_total;
} infer_resp_2;

typedef struct PACKED {
    infer_resp_2 v2;
    uint64_t result_required;
} infer_resp_3;

typedef struct PACKED {
    header h;
    uint64_t dsp_addr;
    uint32_t size, rsvd;
} set_printf_buf;

SIZE(header, 16);
SIZE(descriptor, 80);
SIZE(ping_resp, 24);
SIZE(status_resp, 32);
SIZE(dyn_load, 32);
SIZE(dyn_load_resp_2, 40);
SIZE(dyn_load_resp_3, 68);
SIZE(unload, 20);
SIZE(model_load, 32);
SIZE(model_load_resp, 36);
SIZE(infer_2, 32);
SIZE(infer_3, 64);
SIZE(infer_large_2, 48);
SIZE(infer_large_3, 80);
SIZE(infer_resp_2, 60);
SIZE(infer_resp_3, 68);
SIZE(set_printf_buf, 32);

static descriptor descriptors[DESCRIPTORS]; /* of 0, 1, 2, 3 and 6 extents */

static void fill_descriptors(void) {
    for (int i = 0; i < DESCRIPTORS; i++) {
        descriptors[i] = (descriptor){.data_addr = 0xC1234567890ABC00 + i,
                                      .data_size = 0x5000000000 + i,
                                      .ndim = i + 2 * (i > 3),
                                      .dtype_code = i % 3,
                                      .dtype_bits = 8 << (i % 4)};
        for (int axis = 0; axis < descriptors[i].ndim; axis++)
            descriptors[i].shape[axis] = 0x100000000 * axis + 2 + axis;
    }
}

static void emit(const char *name, const void *message, size_t size, int count) {
    unsigned char bytes[512];
    header h;
    memcpy(bytes, message, size);
    memcpy(bytes + size, descriptors, count * sizeof(descriptor));
    size += count * sizeof(descriptor);
    memcpy(&h, bytes, sizeof h);
    h.len = size;
    memcpy(bytes, &h, sizeof h);
    printf("%s ", name);
    for (size_t at = 0; at < size; at++)
        printf("%02x", bytes[at]);
    printf("\n");
}

#define EMIT(name, message) emit(name, &(message), sizeof(message), 0)

static header request(uint32_t type) {
    return (header){type, 0x89ABCDEF, 0, 0};
}

static header reply(uint32_t type, int32_t status) {
    return (header){type | 0x1000, 0x89ABCDEF, 0, status};
}

static const memory MEMORY = {0xA1A2A3A4A5A6A7A8, 0xB1B2B3B4B5B6B7B8, 0xC1C2C3C4C5C6C7C8,
                              0xD1D2D3D4D5D6D7D8};

static void requests(void) {
    header ping = request(0x01), status = request(0x03);
    dyn_load load = {request(0x10), 0x11121314, 0, {0, 0}};
    unload module = {request(0x12), 0x21222324}, weights = {request(0x22), 0x31323334};
    model_load model = {request(0x20), 0x41424344, 0, {0, 0}};
    set_printf_buf printf_buf = {request(0x30), 0x5152535455565758, 0x61626364, 0};
    EMIT("ping", ping);
    EMIT("get_status", status);
    EMIT("dyn_load", load);
    EMIT("dyn_unload", module);
    EMIT("model_load", model);
    EMIT("model_unload", weights);
    EMIT("set_printf_buf", printf_buf);
}

static void infers(void) {
    char name[40];
    for (uint32_t n = 1; n <= 4; n++) {
        infer_3 message = {{request(0x21), 0x01020304, 0x05060708, n, 1}, MEMORY};
        snprintf(name, sizeof name, "v2.infer.%" PRIu32, n);
        emit(name, &message.v2, sizeof message.v2, n);
        snprintf(name, sizeof name, "v3.infer.%" PRIu32, n);
        emit(name, &message, sizeof message, n);
    }
    infer_3 flagged = {{request(0x21), 0x01020304, 0, 1, 0x1FFFF}, MEMORY};
    emit("v2.infer.flags", &flagged.v2, sizeof flagged.v2, 1);
    emit("v3.infer.flags", &flagged, sizeof flagged, 1);
    infer_large_3 large = {
        {{request(0x23), 0x01020304, 0x05060708, 5, 0x1ABCD}, 0x7172737475767778, 0x81828384, 0}, MEMORY};
    EMIT("v2.infer_large", large.v2);
    EMIT("v3.infer_large", large);
}

static void plain_replies(void) {
    static const uint32_t OPCODES[] = {0x01, 0x03, 0x10, 0x12, 0x20, 0x21, 0x22, 0x23, 0x30};
    char name[40];
    for (size_t i = 0; i < sizeof OPCODES / sizeof *OPCODES; i++) {
        header refusal = reply(OPCODES[i], -2);
        snprintf(name, sizeof name, "refusal.%02" PRIx32, OPCODES[i]);
        EMIT(name, refusal);
    }
    header module = reply(0x12, 0), weights = reply(0x22, 0), printf_buf = reply(0x30, 0);
    ping_resp pong = {reply(0x01, 0), 0x00020305, 0xF1F2F3F4};
    status_resp status = {reply(0x03, 0), 0x00030001, 0xE1E2E3E4, 0xD1D2D3D4, 0xC1C2C3C4};
    model_load_resp model = {reply(0x20, 0), 0x91929394, 0xA1A2A3A4, 0, 0, 0};
    model_load_resp no_memory = {reply(0x20, -3), 0, 0, 0x91929394, 0x81828384, 0x71727374};
    EMIT("dyn_unloaded", module);
    EMIT("model_unloaded", weights);
    EMIT("printf_set", printf_buf);
    EMIT("pong", pong);
    EMIT("status", status);
    EMIT("model_loaded", model);
    EMIT("model_loaded.oom", no_memory);
}

static void load_replies(void) {
    dyn_load_resp_3 told = {{reply(0x10, 0), 0x10111213, 0x20212223, 0x30313233, 0, 0, 0},
                            0x4041424344454647, 0x5051525354555657, 0x60616263, 0x70717273, 1};
    dyn_load_resp_3 silent = {{reply(0x10, 0), 0x10111213, 0, 0, 0, 0, 0}, 0, 0, 0, 0, 0};
    dyn_load_resp_3 inexact = told;
    dyn_load_resp_3 oom = {{reply(0x10, -3), 0, 0, 0, 0x91929394, 0x81828384, 0x71727374}, 0, 0, 0, 0, 0};
    inexact.io_flags = 0xFFFFFFFE;
    EMIT("v2.loaded", told.v2);
    EMIT("v3.loaded", told);
    EMIT("v3.loaded.silent", silent);
    EMIT("v3.loaded.inexact", inexact);
    EMIT("v2.loaded.oom", oom.v2);
    EMIT("v3.loaded.oom", oom);
}

static void emit_both(const char *name, const infer_resp_3 *message, int count) {
    char full[40];
    snprintf(full, sizeof full, "v2.%s", name);
    emit(full, &message->v2, sizeof message->v2, count);
    snprintf(full, sizeof full, "v3.%s", name);
    emit(full, message, sizeof *message, count);
}

static infer_resp_3 inferred(int32_t status, uint32_t count) {
    return (infer_resp_3){
        {reply(0x21, status), -0x01020304, 0x1112131415161718, count, 0x21222324, 0, 0, 0, 0, 0}, 0};
}

static void infer_replies(void) {
    char name[40];
    infer_resp_3 message;
    for (uint32_t count = 0; count <= DESCRIPTORS; count++) {
        message = inferred(0, count);
        snprintf(name, sizeof name, "inferred.%" PRIu32, count);
        emit_both(name, &message, count);
    }
    message = inferred(0, 0);
    emit_both("inferred.none_but_room", &message, 1);
    message = inferred(0, 6);
    message.v2.descs_addr = 0xDE00000000001000;
    message.v2.descs_size = 0x31323334;
    emit_both("inferred.table", &message, 1);
    message = inferred(-11, 1000000000);
    message.v2.descs_addr = 0xFFFFFFFFFFFFFFFF;
    message.v2.descs_size = 0xFFFFFFFF;
    message.result_required = 0x4142434445464748; /* stale: only -7 means it */
    emit_both("inferred.failed", &message, 1);
    message = inferred(-3, 0);
    message.v2.oom_requested = 0x51525354;
    message.v2.oom_free = 0x61626364;
    message.v2.oom_total = 0x71727374;
    emit_both("inferred.oom", &message, 1);
    message = inferred(-7, 0);
    message.result_required = 0x4142434445464748;
    emit_both("inferred.size", &message, 1);
    message = inferred(0, 2);
    descriptors[0].reserved = 0x7FFFFFFF;
    descriptors[1].reserved = 3;
    emit_both("inferred.tuple", &message, 2);
}

int main(void) {
    fill_descriptors();
    requests();
    infers();
    plain_replies();
    load_replies();
    infer_replies();
    return 0;
}
