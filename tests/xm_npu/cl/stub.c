/* A libxmedia_cl that hands every call to whoever is behind it, as an array of 64-bit numbers.
 *
 * The structures are written here once more, from what is known of revision C, and not from structs.py. A call
 * is its name and at most 16 numbers; a pointer is its address. What a call writes through its pointers comes
 * back in `out`. The tensors of a side travel as one flat array: see `flatten`. */

#include <stddef.h>
#include <stdint.h>

typedef int32_t s32;
typedef uint32_t u32;
typedef int64_t s64;
typedef uint64_t u64;

typedef struct { u32 ndims; u32 dims[8]; u32 pch[8]; u32 type; } shape_t;
typedef struct { float scale; s32 zp; } quant_t;
typedef struct { u32 num; u32 *id; } list_t;
typedef struct { u32 batch_count; u32 batch[8]; } batch_t;
typedef struct { u32 tensor_id; void *addr; shape_t shape; quant_t quant; u32 size; char *name; } tensor_t;
typedef struct { u32 num; tensor_t *tensor; batch_t *batch; u32 *current; } inout_t;
typedef struct { u32 worksize, weightsize, inputsize, outputsize, codesize, reuse, privatesize; } mem_info_t;
typedef struct { u32 type; u32 flag; } profiling_t;
typedef void (*notify_t)(void *event, s32 status, void *data);

#if UINTPTR_MAX == 0xffffffff
enum { TENSOR = 96, ADDR = 4, SHAPE = 8, QUANT = 80, SIZE = 88, NAME = 92, INOUT = 16, LIST = 8 };
#else
enum { TENSOR = 112, ADDR = 8, SHAPE = 16, QUANT = 88, SIZE = 96, NAME = 104, INOUT = 32, LIST = 16 };
#endif
_Static_assert(sizeof(shape_t) == 72 && sizeof(quant_t) == 8 && sizeof(batch_t) == 36, "fixed");
_Static_assert(sizeof(mem_info_t) == 28 && sizeof(profiling_t) == 8, "fixed");
_Static_assert(sizeof(tensor_t) == TENSOR && sizeof(inout_t) == INOUT && sizeof(list_t) == LIST, "sizes");
_Static_assert(offsetof(tensor_t, addr) == ADDR && offsetof(tensor_t, shape) == SHAPE, "tensor");
_Static_assert(offsetof(tensor_t, quant) == QUANT && offsetof(tensor_t, size) == SIZE, "tensor");
_Static_assert(offsetof(tensor_t, name) == NAME, "tensor");

enum { HEAD = 4, PER = 36, MOST = 64 };

/* Set by the test: returns what the function returns. */
s64 (*stub_behind)(const char *name, const s64 *in, s64 *out, s64 *input, s64 *output);

static s64 address(const void *pointer) { return (s64)(uintptr_t)pointer; }
static void *pointer(s64 number) { return (void *)(uintptr_t)number; }

/* num, then whether each array is there, then for each tensor 36 numbers. */
static s64 *flatten(const inout_t *io, s64 *flat) {
  if (!io) return NULL;
  flat[0] = io->num; flat[1] = !!io->tensor; flat[2] = !!io->batch; flat[3] = !!io->current;
  for (u32 i = 0; i < io->num && i < MOST; i++) {
    s64 *at = flat + HEAD + PER * i;
    __builtin_memset(at, 0, PER * sizeof *at);
    if (io->tensor) {
      const tensor_t *t = io->tensor + i;
      at[0] = t->tensor_id; at[1] = address(t->addr); at[2] = t->shape.ndims;
      for (int k = 0; k < 8; k++) { at[3 + k] = t->shape.dims[k]; at[11 + k] = t->shape.pch[k]; }
      at[19] = t->shape.type; __builtin_memcpy(at + 20, &t->quant.scale, 4); at[21] = t->quant.zp;
      at[22] = t->size; at[23] = address(t->name);
    }
    if (io->batch) {
      at[24] = io->batch[i].batch_count;
      for (int k = 0; k < 8; k++) at[25 + k] = io->batch[i].batch[k];
    }
    if (io->current) at[33] = io->current[i];
  }
  return flat;
}

static void unflatten(const s64 *flat, inout_t *io, int arrays) {
  if (!io) return;
  io->num = (u32)flat[0];
  for (u32 i = 0; arrays && i < io->num && i < MOST; i++) {
    const s64 *at = flat + HEAD + PER * i;
    if (io->tensor) {
      tensor_t *t = io->tensor + i;
      t->tensor_id = (u32)at[0]; t->addr = pointer(at[1]); t->shape.ndims = (u32)at[2];
      for (int k = 0; k < 8; k++) { t->shape.dims[k] = (u32)at[3 + k]; t->shape.pch[k] = (u32)at[11 + k]; }
      t->shape.type = (u32)at[19]; __builtin_memcpy(&t->quant.scale, at + 20, 4); t->quant.zp = (s32)at[21];
      t->size = (u32)at[22]; t->name = pointer(at[23]);
    }
    if (io->batch) {
      io->batch[i].batch_count = (u32)at[24];
      for (int k = 0; k < 8; k++) io->batch[i].batch[k] = (u32)at[25 + k];
    }
    if (io->current) io->current[i] = (u32)at[33];
  }
}

#define CALL(name, ...) \
  s64 in[] = {0, ##__VA_ARGS__}, out[16] = {0}; \
  s64 value = stub_behind(name, in + 1, out, NULL, NULL); (void)value
#define A(x) address(x)
#define PLAIN(name, args, ...) s32 name args { CALL(#name, ##__VA_ARGS__); return (s32)value; }

PLAIN(xmedia_sys_init, (const void *config), A(config))
PLAIN(xmedia_sys_exit, (void))
void xmedia_mmz_init(void) { CALL("xmedia_mmz_init"); }
void xmedia_mmz_exit(void) { CALL("xmedia_mmz_exit"); }
u64 xmedia_mmz_alloc(const char *zone, const char *name, u32 size) {
  CALL("xmedia_mmz_alloc", A(zone), A(name), size);
  return (u64)value;
}
PLAIN(xmedia_mmz_free, (u64 phy), (s64)phy)
void *xmedia_mmz_map(u64 phy, u32 size, s32 cached) {
  CALL("xmedia_mmz_map", (s64)phy, size, cached);
  return pointer(value);
}
PLAIN(xmedia_mmz_unmap, (void *virt), A(virt))
PLAIN(xmedia_mmz_flush_cache, (u64 phy, void *virt, u32 size), (s64)phy, A(virt), size)
s32 xmedia_mmz_virt_to_phy(void *virt, u64 *phy) {
  CALL("xmedia_mmz_virt_to_phy", A(virt));
  *phy = (u64)out[0];
  return (s32)value;
}
s32 xmedia_mmz_is_cached(void *virt, s32 *cached) {
  CALL("xmedia_mmz_is_cached", A(virt));
  *cached = (s32)out[0];
  return (s32)value;
}

PLAIN(xmedia_cl_init, (void))
PLAIN(xmedia_cl_uninit, (void))
s32 xmedia_cl_get_device_ids(u32 type, void **devices, u32 *number) {
  CALL("xmedia_cl_get_device_ids", type, !!devices, number ? (s64)*number : -1);
  if (number) *number = (u32)out[0];
  for (u32 i = 0; devices && number && i < *number && i < 15; i++) devices[i] = pointer(out[1 + i]);
  return (s32)value;
}
s32 xmedia_cl_release_device_ids(void **devices, u32 *number) {
  CALL("xmedia_cl_release_device_ids", *number, !!devices, devices ? A(devices[0]) : 0,
       devices && *number > 1 ? A(devices[1]) : 0, devices && *number > 2 ? A(devices[2]) : 0);
  return (s32)value;
}
void *xmedia_cl_create_context(u32 number, void **devices, s32 *error) {
  CALL("xmedia_cl_create_context", number, !!devices, devices && number ? A(devices[0]) : 0,
       devices && number > 1 ? A(devices[1]) : 0, devices && number > 2 ? A(devices[2]) : 0);
  if (error) *error = (s32)out[0];
  return pointer(value);
}
PLAIN(xmedia_cl_release_context, (void *context), A(context))
PLAIN(xmedia_cl_set_workspace_addr, (void *context, void *addr, u32 size), A(context), A(addr), size)
s32 xmedia_cl_get_workspace_addr(void *context, void **addr, u32 *size) {
  CALL("xmedia_cl_get_workspace_addr", A(context));
  *addr = pointer(out[0]); *size = (u32)out[1];
  return (s32)value;
}

#define SIZES(name) s32 name(const char *model, u32 *work, u32 *weight) { \
  CALL(#name, A(model)); *work = (u32)out[0]; *weight = (u32)out[1]; return (s32)value; }
SIZES(xmedia_cl_graph_querysize_from_file)
SIZES(xmedia_cl_graph_querysize_from_buff)

#define INFO(name) s32 name(const char *model, void *info, u32 kind) { \
  CALL(#name, A(model), kind); mem_info_t *to = info; \
  *to = (mem_info_t){(u32)out[0], (u32)out[1], (u32)out[2], (u32)out[3], (u32)out[4], (u32)out[5], (u32)out[6]}; \
  return (s32)value; }
INFO(xmedia_cl_graph_query_model_info_from_file)
INFO(xmedia_cl_graph_query_model_info_from_buff)

#define PRIVATE(name) s32 name(const char *model, void *to, u32 size) { \
  CALL(#name, A(model), size); if (!value) __builtin_memcpy(to, pointer(out[0]), size); return (s32)value; }
PRIVATE(xmedia_cl_graph_get_private_data_from_file)
PRIVATE(xmedia_cl_graph_get_private_data_from_buff)

#define LOAD(name) s32 name(void **context, const char *model, void **graph) { \
  CALL(#name, context ? A(*context) : 0, A(model)); *graph = pointer(out[0]); return (s32)value; }
LOAD(xmedia_cl_graph_loadmodel_from_file)
LOAD(xmedia_cl_graph_loadmodel_from_buff)

#define WITHMEM(name) s32 name(void **context, const char *model, void *work, u32 worksize, void *weight, \
                               u32 weightsize, void **graph) { \
  CALL(#name, context ? A(*context) : 0, A(model), A(work), worksize, A(weight), weightsize); \
  *graph = pointer(out[0]); return (s32)value; }
WITHMEM(xmedia_cl_graph_loadmodel_from_file_withmem)
WITHMEM(xmedia_cl_graph_loadmodel_from_buff_withmem)

PLAIN(xmedia_cl_graph_unload, (void *graph), A(graph))

static s32 with_inouts(const char *name, const s64 *in, inout_t *one, inout_t *two, int arrays) {
  static __thread s64 flat[2][HEAD + PER * MOST];
  s64 out[16] = {0}, *first = flatten(one, flat[0]), *second = flatten(two, flat[1]);
  s64 value = stub_behind(name, in, out, first, second);
  unflatten(first, one, arrays);
  return (s32)value;
}

static s32 get(const char *name, void *graph, u32 number, inout_t *io) {
  inout_t room;
  if (!io) return with_inouts(name, (s64[]){A(graph), number}, NULL, NULL, 0);
  room = *io;
  if (number) room.num = number;
  s32 status = with_inouts(name, (s64[]){A(graph), number}, &room, NULL, number != 0);
  if (!status) io->num = room.num;
  return status;
}
s32 xmedia_cl_graph_get_input(void *graph, u32 number, inout_t *io) {
  return get("xmedia_cl_graph_get_input", graph, number, io);
}
s32 xmedia_cl_graph_get_output(void *graph, u32 number, inout_t *io) {
  return get("xmedia_cl_graph_get_output", graph, number, io);
}
s32 xmedia_cl_graph_set_dynamic_batch_size(void *graph, inout_t *io, u32 index, u32 batch) {
  s64 in[] = {A(graph), index, batch};
  return with_inouts("xmedia_cl_graph_set_dynamic_batch_size", in, io, NULL, 1);
}
s32 xmedia_cl_graph_set_inout(void *graph, const inout_t *input, const inout_t *output) {
  s64 in[] = {A(graph)};
  return with_inouts("xmedia_cl_graph_set_inout", in, (inout_t *)input, (inout_t *)output, 0);
}
PLAIN(xmedia_cl_graph_process, (void *graph), A(graph))
s32 xmedia_cl_graph_submit(void *graph, void **event) {
  CALL("xmedia_cl_graph_submit", A(graph));
  *event = pointer(out[0]);
  return (s32)value;
}
PLAIN(xmedia_cl_graph_set_schedule_prio, (void *graph, u32 prio), A(graph), prio)
s32 xmedia_cl_graph_get_memory_reuse_type(void *graph, u32 *type) {
  CALL("xmedia_cl_graph_get_memory_reuse_type", A(graph));
  *type = (u32)out[0];
  return (s32)value;
}
s32 xmedia_cl_graph_get_private_data(void *graph, void **data, u32 *size) {
  CALL("xmedia_cl_graph_get_private_data", A(graph));
  *data = pointer(out[0]); *size = (u32)out[1];
  return (s32)value;
}
PLAIN(xmedia_cl_graph_set_compress_config, (void *graph, void *head, u32 size, u32 line), A(graph), A(head), size, line)
s32 xmedia_cl_graph_communicate(void *graph, u32 *model) {
  CALL("xmedia_cl_graph_communicate", A(graph));
  *model = (u32)out[0];
  return (s32)value;
}
PLAIN(xmedia_cl_graph_decommunicate, (void *graph, u32 model), A(graph), model)
PLAIN(xmedia_cl_set_profiling, (void *graph, profiling_t params), A(graph), params.type, params.flag)

s32 xmedia_cl_wait_for_events(u32 number, void **events) {
  CALL("xmedia_cl_wait_for_events", number, !!events, events && number ? A(events[0]) : 0,
       events && number > 1 ? A(events[1]) : 0, events && number > 2 ? A(events[2]) : 0);
  return (s32)value;
}
s32 xmedia_cl_query_event_status(void *event, s32 *status) {
  CALL("xmedia_cl_query_event_status", A(event));
  *status = (s32)out[0];
  return (s32)value;
}
PLAIN(xmedia_cl_set_event_callback, (void *event, s32 status, notify_t notify, void *data),
      A(event), status, (s64)(uintptr_t)notify, A(data))
PLAIN(xmedia_cl_release_event, (void *event), A(event))
