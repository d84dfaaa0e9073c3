/* What a test can ask of the driver in fake_cuda.c. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

/* Called for each launch with the kernel's name, groups, threads of a group, and its argument. */
typedef void (*fake_cuda_kernel)(const char* name, unsigned groups, unsigned threads, void* argument);

void fake_cuda_reset(void);                       /* no faults, no counts; what lives, lives on */
void fake_cuda_run_kernels(fake_cuda_kernel run); /* null: launches do nothing */
void fake_cuda_fail(const char* call, int code);  /* that call says so from now on; 0: it works again */
void fake_cuda_break(int code);                   /* every call says so, as after a sticky error */
void fake_cuda_hold(int on);                      /* events are not ready as long as it is on */
void fake_cuda_capture(void* stream);             /* that stream is being captured; null: none */
int fake_cuda_calls(const char* call);
int fake_cuda_all_calls(void);
int fake_cuda_living(void); /* streams, events, allocations, mappings, modules, contexts, registrations */

/* Virtual time: what calls cost their thread and the GPU, as measured on an H200 with PCIe 5. Work takes the first gap
 * after all that it waits for in which its copy engine, or enough multiprocessors, are free. From the beginning on all
 * is idle at 0; times are nanoseconds. */
struct fake_cuda_cost {
  double time;
  double multiprocessors; /* that it holds meanwhile */
};
typedef struct fake_cuda_cost (*fake_cuda_kernel_cost)(const char* name, unsigned groups, void* argument);
void fake_cuda_begin_time(fake_cuda_kernel_cost cost); /* null: time is not kept any more */
double fake_cuda_thread_time(void);
double fake_cuda_stream_time(void* stream); /* when all that it was given has ended */
int fake_cuda_is_device(const void* address);

#ifdef __cplusplus
}
#endif

#endif
