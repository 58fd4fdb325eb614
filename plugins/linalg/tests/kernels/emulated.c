/* Runs kernels without ONNX Runtime: its table of functions with what kernels call, and tensors from stdin.

   A request is the kernel's number (i32) and its inputs; the answer is a status (i32) and its outputs, or a length and a message.
   A tensor is its rank (i32), sizes (i64) and elements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

OrtStatus *RegisterCustomOps(void *options, const OrtApiBase *base);

typedef struct { int64_t shape[12]; size_t rank; char *data; } Tensor;
static Tensor input[64], output[64];
static const Op *registered[4096];
static int count, now;

static size_t bytes_of(int type) { return type == 11 || type == 7 ? 8 : type == 9 ? 1 : 4; }
static size_t elements(const Tensor *t) {
  size_t n = 1;
  for (size_t a = 0; a < t->rank; a++) n *= (size_t)t->shape[a];
  return n;
}

static void *create_status(int code, const char *message) { (void)code; return strdup(message); }
static void *create_domain(const char *name, void **out) { (void)name; *out = &count; return NULL; }
static void *add_op(void *domain, const Op *op) { (void)domain; registered[count++] = op; return NULL; }
static void *add_domain(void *options, void *domain) { (void)options; (void)domain; return NULL; }
static void *get_data(Tensor *t, void **out) { *out = t->data; return NULL; }
static void *get_rank(Tensor *t, size_t *out) { *out = t->rank; return NULL; }
static void *get_shape(Tensor *t, int64_t *out, size_t n) { memcpy(out, t->shape, n * 8); return NULL; }
static void *get_info(Tensor *t, Tensor **out) { *out = t; return NULL; }
static void *get_both(Tensor *t, int *type, const int64_t **shape, size_t *rank) {
  *type = 0, *shape = t->shape, *rank = t->rank;
  return NULL;
}
static void *get_input(void *context, size_t n, Tensor **out) { (void)context; *out = &input[n]; return NULL; }
static void *get_output(void *context, size_t n, const int64_t *shape, size_t rank, Tensor **out) {
  const Op *op = registered[now];
  (void)context;
  output[n].rank = rank;
  memcpy(output[n].shape, shape, rank * 8);
  output[n].data = malloc(elements(&output[n]) * bytes_of(op->output_type(op, n)) + 1);
  *out = &output[n];
  return NULL;
}
static void release(Tensor *t) { (void)t; }
static void *parallel(void *context, void (*run)(void *, size_t), size_t total, size_t batches, void *user) {
  (void)context; (void)batches;
  for (size_t n = total; n-- > 0;) run(user, n); /* in another order */
  return NULL;
}

static Slot table[415];
/* Only the places that a version has. */
static const Slot *get_api(uint32_t version) {
  if (version >= 24) table[414] = (Slot)get_both;
  return table;
}

static const char *version_text;
static const char *version(void) { return version_text; }

static void take(void *to, size_t bytes) { if (bytes && fread(to, bytes, 1, stdin) != 1) exit(0); }
static void give(const void *from, size_t bytes) { if (bytes) fwrite(from, bytes, 1, stdout); }

/* The argument is the version of ONNX Runtime: "1.17.0". */
int main(int count_of_arguments, char **arguments) {
  if (count_of_arguments != 2) return 2;
  version_text = arguments[1];
  table[0] = (Slot)create_status, table[26] = (Slot)create_domain, table[27] = (Slot)add_op, table[28] = (Slot)add_domain;
  table[51] = (Slot)get_data, table[61] = (Slot)get_rank, table[62] = (Slot)get_shape, table[65] = (Slot)get_info;
  table[90] = (Slot)get_input, table[91] = (Slot)get_output, table[99] = (Slot)release, table[274] = (Slot)parallel;
  OrtApiBase base = {get_api, version};
  const char *problem = (const char *)RegisterCustomOps(NULL, &base);
  if (problem != NULL) return fprintf(stderr, "%s\n", problem), 1;
  for (;;) {
    int32_t number;
    take(&number, 4);
    const Op *op = registered[now = number];
    for (size_t n = 0; n < op->input_count(op); n++) {
      int32_t rank;
      take(&rank, 4);
      input[n].rank = (size_t)rank;
      take(input[n].shape, 8 * input[n].rank);
      size_t bytes = elements(&input[n]) * bytes_of(op->input_type(op, n));
      input[n].data = malloc(bytes + 1);
      take(input[n].data, bytes);
    }
    void *kernel;
    op->create_kernel(op, table, NULL, &kernel);
    const char *failed = (const char *)op->compute(kernel, NULL);
    int32_t status = failed == NULL ? 0 : (int32_t)strlen(failed);
    give(&status, 4);
    if (failed != NULL) give(failed, (size_t)status);
    else for (size_t n = 0; n < op->output_count(op); n++) {
      int32_t rank = (int32_t)output[n].rank;
      give(&rank, 4);
      give(output[n].shape, 8 * output[n].rank);
      give(output[n].data, elements(&output[n]) * bytes_of(op->output_type(op, n)));
    }
    fflush(stdout);
  }
}
