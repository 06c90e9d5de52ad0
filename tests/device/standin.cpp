// A stand-in accelerator for tests: a PyTorch device whose memory is the CPU's and whose streams are threads.
//
// What is like an accelerator: tensors of another device type, two devices with a memory limit each, streams and
// events, pinned memory, copies that run later on a stream (so that a program that does not wait reads stale data),
// autocast, a slower second device, operators that refuse tensors of two devices, on request a device without float64
// (Intel's Arc cards have none). What is not: an operator runs at once, in the calling thread, by the CPU's kernel.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <ATen/ATen.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using c10::Device;
using c10::DeviceIndex;
constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex kDevices = 2;

double variable(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atof(text) : otherwise;
}

void sleep_s(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What tests set, by the environment or by the functions at the end of this file.
struct Settings {
  bool has_float64 = variable("STANDIN_WITHOUT_FLOAT64", 0) == 0;
  double copy_bytes_per_s = variable("STANDIN_COPY_BYTES_PER_S", 2e9);
  double slowness[kDevices] = {1.0, variable("STANDIN_SECOND_SLOWNESS", 1.0)};
  size_t memory_bytes[kDevices] = {
      static_cast<size_t>(variable("STANDIN_MEMORY_BYTES", 1e18)),
      static_cast<size_t>(variable("STANDIN_MEMORY_BYTES", 1e18))};
};
Settings& settings() {
  static Settings all;
  return all;
}

// Streams: a queue of tasks and a thread that does them in order.

class Queue {
 public:
  uint64_t add(std::function<void()> task) {
    std::unique_lock lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    tasks_.push_back(std::move(task));
    changed_.notify_all();
    return ++added_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ == added_; });
  }
  bool is_done() {
    std::unique_lock lock(mutex_);
    return done_ == added_;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      {
        auto task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
      }  // what the task holds is let go before the task counts as done
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
  uint64_t added_ = 0, done_ = 0;
};

struct Streams {
  std::mutex mutex;
  std::map<std::pair<DeviceIndex, c10::StreamId>, Queue*> queues;  // never deleted: their threads end with the process
  c10::StreamId next = 1;
};
Streams& streams() {
  static auto* all = new Streams;
  return *all;
}
Queue& queue_of(const c10::Stream& stream) {
  std::lock_guard lock(streams().mutex);
  auto& queue = streams().queues[{stream.device_index(), stream.id()}];
  if (!queue) queue = new Queue;
  return *queue;
}

thread_local DeviceIndex current_device = 0;
thread_local c10::StreamId current_stream[kDevices] = {0, 0};

c10::Stream stream_of(DeviceIndex index) {
  return c10::Stream(c10::Stream::UNSAFE, Device(kType, index), current_stream[index]);
}
DeviceIndex checked(DeviceIndex index) {
  TORCH_CHECK(index >= -1 && index < kDevices, "there is no stand-in device ", static_cast<int>(index));
  return index < 0 ? current_device : index;
}

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = true;
  Clock::time_point at;
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return is_done; });
  }
};
using SharedEvent = std::shared_ptr<Event>;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(kType, current_device); }
  void setDevice(Device device) const override { current_device = checked(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  c10::Stream getStream(Device device) const override { return stream_of(checked(device.index())); }
  c10::Stream getDefaultStream(Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, Device(kType, checked(device.index())));
  }
  c10::Stream getNewStream(Device device, int) const override {
    std::lock_guard lock(streams().mutex);
    return c10::Stream(c10::Stream::UNSAFE, Device(kType, checked(device.index())), streams().next++);
  }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = stream_of(stream.device_index());
    current_stream[stream.device_index()] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override { return queue_of(stream).is_done(); }
  void synchronizeStream(const c10::Stream& stream) const override { queue_of(stream).wait(); }
  void synchronizeDevice(const DeviceIndex index) const override {
    std::vector<Queue*> all;
    {
      std::lock_guard lock(streams().mutex);
      for (auto& [key, queue] : streams().queues)
        if (key.first == checked(index)) all.push_back(queue);
    }
    for (auto* queue : all) queue->wait();
  }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new SharedEvent;
    auto fresh = std::make_shared<Event>();
    fresh->is_done = false;
    *static_cast<SharedEvent*>(*event) = fresh;
    queue_of(stream).add([fresh] {
      std::lock_guard lock(fresh->mutex);
      fresh->at = Clock::now();
      fresh->is_done = true;
      fresh->changed.notify_all();
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) queue_of(stream).add([held = *static_cast<SharedEvent*>(event)] { held->wait(); });
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    auto& held = *static_cast<SharedEvent*>(event);
    std::lock_guard lock(held->mutex);
    return held->is_done;
  }
  void synchronizeEvent(void* event) const override {
    if (event) (*static_cast<SharedEvent*>(event))->wait();
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<SharedEvent*>(event); }
  double elapsedTime(void* first, void* second, const DeviceIndex) const override {
    synchronizeEvent(first);
    synchronizeEvent(second);
    auto taken = (*static_cast<SharedEvent*>(second))->at - (*static_cast<SharedEvent*>(first))->at;
    return std::chrono::duration<double, std::milli>(taken).count();
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Memory: the CPU's, counted for each device; pinned memory is remembered.

struct Memory {
  std::mutex mutex;
  size_t used[kDevices] = {0, 0};
  size_t most_used[kDevices] = {0, 0};
  std::map<void*, std::pair<DeviceIndex, size_t>> blocks;
  std::map<const char*, size_t> pinned;
};
Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

struct DeviceMemory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto index = current_device;
    void* data = nullptr;
    if (bytes) {
      std::lock_guard lock(memory().mutex);
      auto room = settings().memory_bytes[index];
      TORCH_CHECK_WITH(
          OutOfMemoryError, memory().used[index] + bytes <= room, "stand-in device ", static_cast<int>(index),
          " is out of memory: ", bytes, " bytes asked for, ", memory().used[index], " of ", room, " used");
      TORCH_CHECK(posix_memalign(&data, 64, bytes) == 0, "the computer itself has no memory left");
      memory().used[index] += bytes;
      memory().most_used[index] = std::max(memory().most_used[index], memory().used[index]);
      memory().blocks[data] = {index, bytes};
    }
    return {data, data, &free_block, Device(kType, index)};
  }
  static void free_block(void* data) {
    if (!data) return;
    std::lock_guard lock(memory().mutex);
    auto block = memory().blocks.find(data);
    memory().used[block->second.first] -= block->second.second;
    memory().blocks.erase(block);
    std::free(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // For torch.accelerator.memory_allocated and its like; nothing is cached.
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex index) override {
    std::lock_guard lock(memory().mutex);
    c10::CachingDeviceAllocator::DeviceStats all;
    for (auto* stat : {&all.allocated_bytes[0], &all.reserved_bytes[0], &all.active_bytes[0]}) {
      stat->current = static_cast<int64_t>(memory().used[index]);
      stat->peak = static_cast<int64_t>(memory().most_used[index]);
    }
    return all;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex index) override {
    std::lock_guard lock(memory().mutex);
    memory().most_used[index] = memory().used[index];
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex index) override {
    std::lock_guard lock(memory().mutex);
    return {settings().memory_bytes[index] - memory().used[index], settings().memory_bytes[index]};
  }
};
DeviceMemory device_memory;
REGISTER_ALLOCATOR(kType, &device_memory)

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    TORCH_CHECK(posix_memalign(&data, 64, bytes ? bytes : 1) == 0, "the computer itself has no memory left");
    std::lock_guard lock(memory().mutex);
    memory().pinned[static_cast<char*>(data)] = bytes ? bytes : 1;
    return {data, data, &free_block, Device(c10::DeviceType::CPU)};
  }
  static void free_block(void* data) {
    std::lock_guard lock(memory().mutex);
    memory().pinned.erase(static_cast<char*>(data));
    std::free(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};
PinnedMemory pinned_memory;

bool is_pinned(const void* data) {
  std::lock_guard lock(memory().mutex);
  auto* at = static_cast<const char*>(data);
  auto after = memory().pinned.upper_bound(at);
  if (after == memory().pinned.begin()) return false;
  auto block = std::prev(after);
  return at < block->first + block->second;
}

// Random numbers: the CPU's generator under another device.

struct Random final : at::CPUGeneratorImpl {
  explicit Random(DeviceIndex index) {
    device_ = Device(kType, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(DeviceIndex index) const override { current_device = checked(index); }
  DeviceIndex getCurrentDevice() const override { return current_device; }
  DeviceIndex exchangeDevice(DeviceIndex index) const override { return std::exchange(current_device, checked(index)); }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  Device getDeviceFromPtr(void* data) const override {
    std::lock_guard lock(memory().mutex);
    return Device(kType, memory().blocks.at(data).first);
  }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override {
    static auto* all = new std::vector<at::Generator>{
        at::make_generator<Random>(DeviceIndex(0)), at::make_generator<Random>(DeviceIndex(1))};
    return (*all)[checked(index)];
  }
  at::Generator getNewGenerator(DeviceIndex index) const override { return at::make_generator<Random>(checked(index)); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    Guard().setDevice(storage.device());
    auto fresh = device_memory.allocate(bytes);
    if (storage.data()) std::memcpy(fresh.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// Operators. A device's tensor can be seen as a tensor of the CPU with the same memory.

at::Tensor as_cpu(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU).requires_grad(false));
}

void check_type(at::ScalarType type) {
  TORCH_CHECK_TYPE(settings().has_float64 || type != at::kDouble, "the stand-in device has no float64");
}

at::Tensor empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>, std::optional<Device> device,
    std::optional<bool>, std::optional<at::MemoryFormat> format) {
  check_type(c10::dtype_or_default(type));
  c10::DeviceGuard on(device.value_or(Device(kType, current_device)));
  constexpr c10::DispatchKeySet key(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, &device_memory, key, c10::dtype_or_default(type), format);
}
at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool>) {
  check_type(c10::dtype_or_default(type));
  c10::DeviceGuard on(device.value_or(Device(kType, current_device)));
  constexpr c10::DispatchKeySet key(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, &device_memory, key, c10::dtype_or_default(type));
}

thread_local bool is_in_operator = false;  // the copies that running on the CPU needs cost nothing on a real device

void copy_now(const at::Tensor& from, const at::Tensor& to) {
  at::AutoDispatchBelowADInplaceOrView below;
  if (from.is_cpu() != to.is_cpu() && !is_in_operator)
    sleep_s(static_cast<double>(from.nbytes()) / settings().copy_bytes_per_s);
  auto target = as_cpu(to);
  target.copy_(as_cpu(from));
}
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  auto& device = from.is_cpu() ? to : from;
  if (!from.is_cpu()) check_type(to.scalar_type());  // a device changes the type before it copies
  auto& queue = queue_of(stream_of(device.device().index()));
  auto& other = from.is_cpu() ? from : to;
  const bool is_async = non_blocking && other.is_cpu() && is_pinned(other.data_ptr());
  if (is_async) {
    queue.add([from = from.detach(), to = to.detach()] { copy_now(from, to); });
  } else {
    queue.wait();
    copy_now(from, to);
  }
  return to;
}
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}
at::Scalar local_scalar_dense(const at::Tensor& self) {
  queue_of(stream_of(self.device().index())).wait();
  return as_cpu(self).item();
}
void record_stream(at::Tensor&, c10::Stream) {}  // tasks hold their tensors

at::Tensor as_strided(
    const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

// An operator runs after what is on its stream, by the CPU's kernel; on a slow device it takes longer.
class Operator {
 public:
  explicit Operator(DeviceIndex index) : index_(index) {
    queue_of(stream_of(index)).wait();
    is_outermost_ = !std::exchange(is_in_operator, true);
    began_ = Clock::now();
  }
  ~Operator() {
    if (!is_outermost_) return;
    is_in_operator = false;
    auto taken_s = std::chrono::duration<double>(Clock::now() - began_).count();
    sleep_s(taken_s * (settings().slowness[index_] - 1));
  }

 private:
  DeviceIndex index_;
  bool is_outermost_;
  Clock::time_point began_;
};

// A device reads no other device's memory; a tensor without dimensions is a number, which may come from the CPU.
void check_device(const at::Tensor& tensor, const Device& device) {
  TORCH_CHECK(
      !tensor.defined() || tensor.dim() == 0 || tensor.device() == device,
      "Expected all tensors to be on the same device, but found at least two devices, ", device, " and ",
      tensor.device(), "!");
}

at::Tensor convolution(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
    int64_t groups) {
  check_device(weight, input.device());
  Operator now(input.device().index());
  std::optional<at::Tensor> own_bias;
  if (bias && bias->defined()) own_bias = as_cpu(*bias);
  return at::convolution(
             as_cpu(input), as_cpu(weight), own_bias, stride, padding, dilation, transposed, output_padding, groups)
      .to(input.device());
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> mask) {
  Operator now(input.device().index());
  c10::IntArrayRef bias_size(weight.sizes().data(), 1);
  auto [a, b, c] = at::convolution_backward(
      as_cpu(grad), as_cpu(input), as_cpu(weight), bias_size, stride, padding, dilation, transposed, output_padding,
      groups, mask);
  auto back = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(input.device()) : tensor; };
  return {back(a), back(b), back(c)};
}

int64_t attention_by_plain_operators(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool,
    std::optional<double>, bool) {
  return 0;  // SDPBackend::math
}

void check_devices(const c10::OperatorHandle& op, const std::vector<c10::IValue>& given, const Device& device) {
  // These read or compare tensors of any device, on a GPU too. An index may be on the CPU; it is in a list of optionals.
  static const std::set<std::string> any_device{
      "aten::_foreach_copy_", "aten::_pack_padded_sequence", "aten::_has_compatible_shallow_copy_type"};
  if (any_device.count(op.schema().name())) return;
  for (const auto& value : given) {
    if (value.isTensor()) check_device(value.toTensor(), device);
    if (value.isTensorList())
      for (const at::Tensor& each : value.toTensorVector()) check_device(each, device);
  }
}

// Every other operator runs on the CPU's view of its arguments, so that what it writes, declared or not (the running
// statistics of BatchNorm are not), is written on the device. What it returns is copied to the device.

bool is_ours(const c10::IValue& value) { return value.isTensor() && value.toTensor().is_privateuseone(); }

c10::IValue as_cpu_value(const c10::IValue& value) {
  if (is_ours(value)) return as_cpu(value.toTensor());
  if (value.isDevice() && value.toDevice().type() == kType) return c10::Device(at::kCPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> all;
    for (const at::Tensor& each : value.toTensorVector()) all.push_back(as_cpu(each));
    return all;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> all;
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
      all.push_back(each && each->defined() ? std::optional(as_cpu(*each)) : each);
    return all;
  }
  return value;
}

c10::IValue as_device_value(const c10::IValue& value, const Device& device) {
  if (value.isTensor() && value.toTensor().defined()) return value.toTensor().to(device);
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> all;
  for (const at::Tensor& each : value.toTensorVector()) all.push_back(each.to(device));
  return all;
}

void any_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto begin = stack->size() - schema.arguments().size();
  const std::vector<c10::IValue> given(stack->begin() + begin, stack->end());
  Device device(kType, current_device);
  bool resizes = false;
  for (size_t at = 0; at < given.size(); ++at) {
    if (given[at].isDevice()) device = Device(kType, checked(given[at].toDevice().index()));
    const auto* alias = schema.arguments()[at].alias_info();
    if (is_ours(given[at]) && alias && alias->isWrite() && given[at].toTensor().numel() == 0) resizes = true;
  }
  for (const auto& value : given) {
    if (is_ours(value)) device = value.toTensor().device();
    if (value.isTensorList())
      for (const at::Tensor& each : value.toTensorVector())
        if (each.is_privateuseone()) device = each.device();
  }
  check_devices(op, given, device);
  Operator now(device.index());
  if (resizes) return at::native::cpu_fallback(op, stack);  // memory that is seen as another tensor's cannot grow
  for (size_t at = 0; at < given.size(); ++at) (*stack)[begin + at] = as_cpu_value(given[at]);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const auto first = stack->size() - schema.returns().size();
  for (size_t at = 0; at < schema.returns().size(); ++at) {
    auto& returned = (*stack)[first + at];
    const auto* alias = schema.returns()[at].alias_info();
    if (!alias || !alias->isWrite()) {
      returned = as_device_value(returned, device);
      continue;
    }
    for (size_t argument = 0; argument < given.size(); ++argument) {
      const auto* other = schema.arguments()[argument].alias_info();
      if (other && other->isWrite() && *other == *alias) returned = given[argument];
    }
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", at::native::resize_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("record_stream", record_stream);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&any_operator>());
}

// Autocast, with the same lists of operators as a GPU's.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
#undef LOWER
#define FULL(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FULL)
#undef FULL
}

struct Register {
  Register() { at::RegisterPrivateUse1HooksInterface(new Hooks); }
} registered;

}  // namespace

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &attention_by_plain_operators)
}

extern "C" {
void standin_set_slowness(int device, double factor) { settings().slowness[device] = factor; }
void standin_set_memory(int device, unsigned long long bytes) { settings().memory_bytes[device] = bytes; }
void standin_set_copy_rate(double bytes_per_s) { settings().copy_bytes_per_s = bytes_per_s; }
unsigned long long standin_used_memory(int device) {
  std::lock_guard lock(memory().mutex);
  return memory().used[device];
}
}
