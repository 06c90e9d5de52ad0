// The functions of NVIDIA's management library (NVML) that Potluck calls, for two cards that do not exist.
// Variables of the process say what the cards report:
//   NVML_BUSY=percent of both cards, NVML_PID=a process that uses the first card, with NVML_TAKEN MiB,
//   NVML_WITHOUT=words of what the driver does not support: power, energy, processes.
// Signatures and numbers are those of NVML's reference manual.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
static const unsigned long long MIB = 1ull << 20;
static int cards[2] = {0, 1};

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}
static int lacks(const char *what) {
    const char *text = getenv("NVML_WITHOUT");
    return text && strstr(text, what);
}
static unsigned power_mw(void *card) { return card == &cards[0] ? 180000 : 90000; }

int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int result) { return "the stub's error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "570.86.10"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) { *card = &cards[index]; return SUCCESS; }
int nvmlDeviceGetName(void *card, char *text, unsigned size) { snprintf(text, size, "Maker Stand-In 1"); return SUCCESS; }
int nvmlDeviceGetUUID(void *card, char *text, unsigned size) {
    snprintf(text, size, "GPU-00000000-0000-0000-0000-00000000000%d", *(int *)card);
    return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(void *card, int *major, int *minor) { *major = 8; *minor = 6; return SUCCESS; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *card, unsigned long long *bits) { *bits = 0; return SUCCESS; }
int nvmlDeviceGetMemoryInfo(void *card, Memory *memory) {
    memory->total = 8192 * MIB;
    memory->used = (card == &cards[0] ? 512 + number("NVML_TAKEN", 0) : 512) * MIB;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *card, Utilization *rates) {
    rates->gpu = number("NVML_BUSY", 0);
    rates->memory = 0;
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *card, unsigned *milliwatts) {
    *milliwatts = power_mw(card);
    return lacks("power") ? NOT_SUPPORTED : SUCCESS;
}
int nvmlDeviceGetTotalEnergyConsumption(void *card, unsigned long long *millijoules) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *millijoules = (unsigned long long)((now.tv_sec % 100000 + now.tv_nsec / 1e9) * power_mw(card));
    return lacks("energy") ? NOT_SUPPORTED : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *card, unsigned *count, Process *found) {
    unsigned pid = number("NVML_PID", 0), room = *count;
    if (lacks("processes")) return NOT_SUPPORTED;
    *count = pid && card == &cards[0];
    if (*count > room) return INSUFFICIENT_SIZE;
    if (*count) found[0] = (Process){pid, number("NVML_TAKEN", 0) * MIB, 0, 0};
    return SUCCESS;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *card, unsigned *count, Process *found) {
    *count = 0;
    return lacks("processes") ? NOT_SUPPORTED : SUCCESS;
}
