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

#ifdef __cplusplus
}
#endif

#endif
