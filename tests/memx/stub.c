/* A libmemx that does nothing but note what arrives and answer what it is told.
 *
 * Beside the library's file, P, lie two others. Every call appends a line to P.calls: its name and its
 * arguments, bytes behind pointers in hexadecimal. P.answers is read at every call; a line of it holds a
 * name, a status, and the numbers that the function writes through its pointers, in their order. Instead of
 * a status it may hold a word: hang, crash, or print, which writes a line on standard output. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VALUES = 64, SHOWN = 16 };

typedef uint32_t memx_status;
typedef struct { size_t size; size_t idx; uint8_t *data; } memx_fmap_buf_t;
typedef struct { memx_status status; int count; double values[VALUES]; } answer_t;

static uint8_t lent[VALUES]; /* the memory of every buffer that is dequeued */

const char *LIB_VER = "libmemx_version: 2.11.2";

static FILE *beside(const char *suffix, const char *mode) {
  Dl_info here;
  char path[4096];
  dladdr((void *)beside, &here);
  snprintf(path, sizeof path, "%s.%s", here.dli_fname, suffix);
  return fopen(path, mode);
}

static void note(const char *format, ...) {
  va_list args;
  FILE *log = beside("calls", "a");
  va_start(args, format);
  vfprintf(log, format, args);
  va_end(args);
  fputc('\n', log);
  fclose(log);
}

/* Bytes in hexadecimal, or null. Two texts may be in use at once. */
static const char *hex(const void *data, size_t size) {
  static __thread char texts[2][2 * SHOWN + 1];
  static __thread int turn;
  char *text = texts[turn ^= 1];
  if (!data) return "null";
  if (size > SHOWN) size = SHOWN;
  text[0] = 0;
  for (size_t place = 0; place < size; place++) sprintf(text + 2 * place, "%02x", ((const uint8_t *)data)[place]);
  return text;
}

static void act(const char *word) {
  if (!strcmp(word, "hang")) for (;;) pause();
  if (!strcmp(word, "crash")) { signal(SIGSEGV, SIG_DFL); raise(SIGSEGV); }
  if (!strcmp(word, "print")) { printf("libmemx speaks\n"); fflush(stdout); }
}

static answer_t answer_for(const char *name) {
  answer_t answer = {0};
  char line[4096], *rest, *word;
  FILE *file = beside("answers", "r");
  while (file && fgets(line, sizeof line, file)) {
    word = strtok_r(line, " \n", &rest);
    if (!word || strcmp(word, name)) continue;
    word = strtok_r(NULL, " \n", &rest);
    if (strchr("hcp", word[0])) { act(word); continue; }
    answer.status = (memx_status)strtoul(word, NULL, 0);
    for (answer.count = 0; (word = strtok_r(NULL, " \n", &rest)); answer.count++)
      answer.values[answer.count] = strtod(word, NULL);
  }
  if (file) fclose(file);
  return answer;
}

static void fill(void *target, const answer_t *answer) {
  for (int place = 0; target && place < answer->count; place++)
    ((uint8_t *)target)[place] = (uint8_t)answer->values[place];
}

__attribute__((constructor)) static void loaded(void) {
  const char *level = getenv("MEMX_LOG_LEVEL");
  note("loaded %s", level ? level : "unset");
  answer_for("loaded");
}

#define ANSWER answer_t answer = answer_for(__func__)

#define ONE(name) memx_status name(uint8_t id) { \
  note("%s %d", __func__, id); ANSWER; return answer.status; }
#define TWO(name) memx_status name(uint8_t id, uint8_t value) { \
  note("%s %d %d", __func__, id, value); ANSWER; return answer.status; }
#define SETTING(name) memx_status name(uint8_t id, int32_t value) { \
  note("%s %d %d", __func__, id, value); ANSWER; return answer.status; }
#define SIZE(name) memx_status name(uint8_t id, uint8_t flow, int32_t *height, int32_t *width, int32_t *z, \
    int32_t *channel_number, int32_t *format) { \
  note("%s %d %d", __func__, id, flow); ANSWER; \
  *height = (int32_t)answer.values[0]; *width = (int32_t)answer.values[1]; *z = (int32_t)answer.values[2]; \
  *channel_number = (int32_t)answer.values[3]; *format = (int32_t)answer.values[4]; \
  return answer.status; }
#define DEQUEUE(name) memx_status name(uint8_t id, uint8_t flow, memx_fmap_buf_t *fmap_buf, int32_t timeout) { \
  note("%s %d %d %d", __func__, id, flow, timeout); ANSWER; \
  if (answer.count) *fmap_buf = (memx_fmap_buf_t){(size_t)answer.values[0], (size_t)answer.values[1], lent}; \
  return answer.status; }
#define ENQUEUE(name) memx_status name(uint8_t id, uint8_t flow, memx_fmap_buf_t *fmap_buf, int32_t timeout) { \
  note("%s %d %d %zu %zu %s %s %d", __func__, id, flow, fmap_buf->size, fmap_buf->idx, \
       fmap_buf->data == lent ? "lent" : "foreign", hex(fmap_buf->data, fmap_buf->size), timeout); ANSWER; \
  return answer.status; }

ONE(memx_lock)
ONE(memx_trylock)
ONE(memx_unlock)
ONE(memx_close)
ONE(memx_set_abort_read)
ONE(memx_enter_device_deep_sleep)
ONE(memx_exit_device_deep_sleep)
TWO(memx_reconfigure)
TWO(memx_set_powerstate)
TWO(memx_config_mpu_group)
SETTING(memx_set_ifmap_queue_size)
SETTING(memx_set_ofmap_queue_size)
SETTING(memx_set_stream_enable)
SETTING(memx_set_stream_disable)
SIZE(memx_get_ifmap_size)
SIZE(memx_get_ofmap_size)
DEQUEUE(memx_dequeue_ifmap_buf)
DEQUEUE(memx_dequeue_ofmap_buf)
ENQUEUE(memx_enqueue_ifmap_buf)
ENQUEUE(memx_enqueue_ofmap_buf)

memx_status memx_open(uint8_t model_id, uint8_t group_id, float chip_gen) {
  note("%s %d %d %.9g", __func__, model_id, group_id, (double)chip_gen);
  ANSWER;
  return answer.status;
}

memx_status memx_operation(uint8_t model_id, uint32_t cmd_id, void *data, uint32_t size) {
  note("%s %d %u %s %u", __func__, model_id, cmd_id, hex(data, size), size);
  ANSWER;
  fill(data, &answer);
  return answer.status;
}

memx_status memx_download_model(uint8_t model_id, const char *file_path, uint8_t model_idx, int32_t type) {
  size_t size = type & 0x80 ? 4 : strlen(file_path);
  note("%s %d %s %d %d", __func__, model_id, type & 0x80 ? hex(file_path, size) : file_path, model_idx, type);
  ANSWER;
  return answer.status;
}

memx_status memx_download_model_wtmem(uint8_t model_id, const char *file_path) {
  note("%s %d %s", __func__, model_id, file_path);
  ANSWER;
  return answer.status;
}

memx_status memx_download_model_config(uint8_t model_id, const char *file_path, uint8_t model_idx) {
  note("%s %d %s %d", __func__, model_id, file_path, model_idx);
  ANSWER;
  return answer.status;
}

memx_status memx_get_ifmap_range_convert(uint8_t model_id, uint8_t flow_id, int32_t *enable, float *shift,
                                         float *scale) {
  note("%s %d %d", __func__, model_id, flow_id);
  ANSWER;
  *enable = (int32_t)answer.values[0];
  *shift = (float)answer.values[1];
  *scale = (float)answer.values[2];
  return answer.status;
}

memx_status memx_get_ofmap_hpoc(uint8_t model_id, uint8_t flow_id, int32_t *hpoc_size, int32_t **hpoc_indexes) {
  static int32_t indexes[VALUES];
  note("%s %d %d", __func__, model_id, flow_id);
  ANSWER;
  for (int place = 0; place < answer.count; place++) indexes[place] = (int32_t)answer.values[place];
  *hpoc_size = answer.count;
  *hpoc_indexes = answer.count ? indexes : NULL;
  return answer.status;
}

memx_status memx_stream_ifmap(uint8_t model_id, uint8_t flow_id, void *ifmap, int32_t timeout) {
  note("%s %d %d %s %d", __func__, model_id, flow_id, hex(ifmap, SHOWN / 2), timeout);
  ANSWER;
  return answer.status;
}

memx_status memx_stream_ofmap(uint8_t model_id, uint8_t flow_id, void *ofmap, int32_t timeout) {
  note("%s %d %d %s %d", __func__, model_id, flow_id, ofmap ? "memory" : "null", timeout);
  ANSWER;
  fill(ofmap, &answer);
  return answer.status;
}

memx_status memx_get_chip_gen(uint8_t model_id, uint8_t *chip_gen) {
  note("%s %d", __func__, model_id);
  ANSWER;
  *chip_gen = (uint8_t)answer.values[0];
  return answer.status;
}

memx_status memx_get_total_chip_count(uint8_t group_id, uint8_t *chip_count) {
  note("%s %d", __func__, group_id);
  ANSWER;
  *chip_count = (uint8_t)answer.values[0];
  return answer.status;
}

memx_status memx_operation_get_device_count(void *data) {
  note("%s", __func__);
  ANSWER;
  *(uint32_t *)data = (uint32_t)answer.values[0];
  return answer.status;
}

memx_status memx_operation_get_mpu_group_count(uint8_t group_id, void *data) {
  note("%s %d", __func__, group_id);
  ANSWER;
  *(uint32_t *)data = (uint32_t)answer.values[0];
  return answer.status;
}

memx_status memx_get_feature(uint8_t group_id, uint8_t chip_id, int opcode, void *buffer) {
  note("%s %d %d %d", __func__, group_id, chip_id, opcode);
  ANSWER;
  fill(buffer, &answer);
  return answer.status;
}

memx_status memx_set_feature(uint8_t group_id, uint8_t chip_id, int opcode, uint16_t parameter) {
  note("%s %d %d %d %d", __func__, group_id, chip_id, opcode, parameter);
  ANSWER;
  return answer.status;
}
