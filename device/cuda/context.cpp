#include "device/cuda/context.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <utility>

namespace cenote::cuda {

namespace {

constexpr int descriptor_handle = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

/// As nvidia-smi writes it.
std::string text_of(const cu_uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", uuid.bytes[i]);
    text += digits;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

result<cu_device> find_device(const driver& api, std::string_view name) {
  int count = 0;
  if (const cu_result code = api.cuDeviceGetCount(&count); code != success) {
    return fail(error_code::unsupported, "cuDeviceGetCount: " + api.name_of(code));
  }
  int wanted = -1;
  std::from_chars(name.data(), name.data() + name.size(), wanted);
  std::string there;
  for (int i = 0; i < count; ++i) {
    cu_device device = 0;
    cu_uuid uuid{};
    if (api.cuDeviceGet(&device, i) != success || api.cuDeviceGetUuid(&uuid, device) != success) continue;
    if (i == wanted || text_of(uuid) == name) return device;
    there += " " + text_of(uuid);
  }
  return fail(error_code::unsupported, "no GPU " + std::string(name) + "; there are " + std::to_string(count) +
                                           (there.empty() ? "" : ":" + there));
}

/// An allocation and its mapping, undone in the right order, also half-way.
struct mapped_allocation {
  mapped_allocation(context_ref given, std::uint64_t size) noexcept : in(std::move(given)), bytes(size) {}
  mapped_allocation(const mapped_allocation&) = delete;
  mapped_allocation& operator=(const mapped_allocation&) = delete;
  ~mapped_allocation() {
    if (in->in_child()) return;
    const context::scope inside(*in);
    if (is_mapped) in->api().cuMemUnmap(at, bytes);
    if (at != nullptr) in->api().cuMemAddressFree(at, bytes);
    if (has_handle) in->api().cuMemRelease(handle);
  }
  result<void> map() {
    const driver& api = in->api();
    if (auto good = in->check(api.cuMemAddressReserve(&at, bytes, 0, nullptr, 0), "cuMemAddressReserve"); !good)
      return good;
    if (auto good = in->check(api.cuMemMap(at, bytes, 0, handle, 0), "cuMemMap"); !good) return good;
    is_mapped = true;
    const cu_access access{{1, in->number()}, 3};
    return in->check(api.cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
  }

  context_ref in;
  std::uint64_t bytes;
  cu_allocation handle = 0;
  cu_pointer at = nullptr;
  bool has_handle = false;
  bool is_mapped = false;
};

/// Fills in the handle: a new allocation, zeroed and with a descriptor, or that of `descriptor`.
result<void> obtain(mapped_allocation& made, const cu_allocation_properties& properties, unique_fd& descriptor) {
  context& in = *made.in;
  const driver& api = in.api();
  if (descriptor) {
    auto good = in.check(api.cuMemImportFromShareableHandle(&made.handle, descriptor.get(), descriptor_handle),
                         "cuMemImportFromShareableHandle");
    if (!good) return good;
    made.has_handle = true;
    descriptor.reset();
    return made.map();
  }
  if (auto good = in.check(api.cuMemCreate(&made.handle, made.bytes, &properties, 0), "cuMemCreate"); !good)
    return good;
  made.has_handle = true;
  int fd = -1;
  auto good = in.check(api.cuMemExportToShareableHandle(&fd, made.handle, descriptor_handle, 0),
                       "cuMemExportToShareableHandle");
  if (!good) return good;
  descriptor.reset(fd);
  if (auto mapped = made.map(); !mapped) return mapped;
  return in.check(api.cuMemsetD8_v2(made.at, 0, made.bytes), "cuMemsetD8");
}

}  // namespace

context::context(std::shared_ptr<const driver> api, cu_device device, cu_context handle) noexcept
    : api_(std::move(api)), device_(device), handle_(handle), process_(::getpid()) {}

context::~context() {
  if (!in_child()) api_->cuDevicePrimaryCtxRelease_v2(device_);
}

bool context::in_child() const noexcept {
  return ::getpid() != process_;
}

result<std::shared_ptr<context>> context::retain(std::shared_ptr<const driver> api, std::string_view name) {
  const auto device = find_device(*api, name);
  if (!device) return std::unexpected(device.error());
  cu_context handle = nullptr;
  if (const cu_result code = api->cuDevicePrimaryCtxRetain(&handle, *device); code != success) {
    return fail(error_code::unsupported, "cuDevicePrimaryCtxRetain: " + api->name_of(code));
  }
  return std::shared_ptr<context>(new context(std::move(api), *device, handle));
}

int context::attribute(int which, int unknown) const noexcept {
  int value = 0;
  return api_->cuDeviceGetAttribute(&value, which, device_) == success ? value : unknown;
}

std::string context::loss() const {
  const cu_result code = loss_.load(std::memory_order_relaxed);
  return code == success ? std::string() : api_->name_of(code);
}

result<void> context::check(cu_result code, std::string_view call) {
  if (code == success) return {};
  cu_result none = success;
  if (is_sticky(code)) loss_.compare_exchange_strong(none, code, std::memory_order_relaxed);
  return fail(code_of(code), std::string(call) + ": " + api_->name_of(code));
}

cuda_stream::cuda_stream(context_ref in, cu_stream handle, bool owned) noexcept
    : context_(std::move(in)), handle_(handle), owned_(owned) {}

cuda_stream::~cuda_stream() {
  if (!owned_ || context_->in_child()) return;
  const context::scope inside(*context_);
  context_->api().cuStreamDestroy_v2(handle_);  // the driver lets its work end
}

result<stream_ref> cuda_stream::create(const context_ref& in) {
  const context::scope inside(*in);
  cu_stream handle = nullptr;
  constexpr unsigned not_blocking = 1;  // no order with the legacy default stream
  int lowest = 0;
  int highest = 0;
  (void)in->check(in->api().cuCtxGetStreamPriorityRange(&lowest, &highest), "cuCtxGetStreamPriorityRange");
  const cu_result code = in->api().cuStreamCreateWithPriority(&handle, not_blocking, highest);
  if (auto good = in->check(code, "cuStreamCreateWithPriority"); !good) return std::unexpected(good.error());
  return std::make_shared<cuda_stream>(in, handle, true);
}

stream_ref cuda_stream::outside(const context_ref& in, void* native) {
  return std::make_shared<cuda_stream>(in, static_cast<cu_stream>(native), false);
}

cuda_event::cuda_event(context_ref in, cu_event handle) noexcept : context_(std::move(in)), handle_(handle) {}

cuda_event::~cuda_event() {
  if (context_->in_child()) return;
  const context::scope inside(*context_);
  context_->api().cuEventDestroy_v2(handle_);
}

result<std::shared_ptr<cuda_event>> cuda_event::create(const context_ref& in) {
  const context::scope inside(*in);
  cu_event handle = nullptr;
  constexpr unsigned without_timing = 2;
  if (auto good = in->check(in->api().cuEventCreate(&handle, without_timing), "cuEventCreate"); !good) {
    return std::unexpected(good.error());
  }
  return std::make_shared<cuda_event>(in, handle);
}

event_state cuda_event::look() {
  const event_state before = known_.load(std::memory_order_acquire);
  if (before != event_state::pending) return before;
  if (context_->in_child()) return event_state::failed;
  const context::scope inside(*context_);
  const cu_result code = context_->api().cuEventQuery(handle_);
  if (code == not_ready) return event_state::pending;
  const auto now = context_->check(code, "cuEventQuery") && !context_->away() ? event_state::done : event_state::failed;
  known_.store(now, std::memory_order_release);
  return now;
}

result<device_memory> share_memory(const context_ref& in, std::uint64_t bytes, unique_fd descriptor) {
  const context::scope inside(*in);
  const cu_allocation_properties properties{1, descriptor_handle, {1, in->number()}, nullptr, {}};
  std::size_t unit = 0;
  auto good =
      in->check(in->api().cuMemGetAllocationGranularity(&unit, &properties, 0), "cuMemGetAllocationGranularity");
  if (!good) return std::unexpected(good.error());
  if (bytes == 0 || unit == 0 || bytes > ~std::uint64_t{0} / 2) {
    return fail(error_code::invalid_argument, std::to_string(bytes) + " bytes of device memory");
  }
  auto made = std::make_shared<mapped_allocation>(in, (bytes + unit - 1) / unit * unit);
  if (auto got = obtain(*made, properties, descriptor); !got) return std::unexpected(got.error());
  std::byte* const first = made->at;
  const std::uint64_t whole = made->bytes;
  return device_memory{std::shared_ptr<std::byte>(std::move(made), first), whole, std::move(descriptor)};
}

}  // namespace cenote::cuda
