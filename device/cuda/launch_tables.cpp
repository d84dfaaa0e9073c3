#include "device/cuda/launch_tables.hpp"

#include <utility>

namespace cenote::cuda {

namespace {

/// Of several tables.
class table_memory {
 public:
  explicit table_memory(context_ref owner) noexcept : context_(std::move(owner)) {}
  table_memory(const table_memory&) = delete;
  table_memory& operator=(const table_memory&) = delete;
  ~table_memory() {
    const context::scope inside(*context_);
    if (device_ != nullptr) context_->api().cuMemFree_v2(device_);
    if (host_ != nullptr) context_->api().cuMemFreeHost(host_);
  }
  result<void> allocate(std::uint64_t bytes) {
    const driver& api = context_->api();
    auto good = context_->check(api.cuMemHostAlloc(&host_, bytes, 0), "cuMemHostAlloc");
    return good ? context_->check(api.cuMemAlloc_v2(&device_, bytes), "cuMemAlloc") : good;
  }
  [[nodiscard]] std::byte* host() const noexcept { return static_cast<std::byte*>(host_); }
  [[nodiscard]] std::byte* device() const noexcept { return device_; }

 private:
  context_ref context_;
  void* host_ = nullptr;
  cu_pointer device_ = nullptr;
};

}  // namespace

result<std::vector<std::unique_ptr<launch_tables>>> launch_tables::create(const context_ref& owner, std::uint64_t bytes,
                                                                          std::size_t count) {
  auto memory = std::make_shared<table_memory>(owner);
  if (auto good = memory->allocate(bytes * count); !good) return std::unexpected(good.error());
  std::vector<std::unique_ptr<launch_tables>> made;
  for (std::size_t i = 0; i < count; ++i) {
    auto end = cuda_event::create(owner);
    if (!end) return std::unexpected(end.error());
    made.push_back(std::make_unique<launch_tables>(owner, memory, std::span(memory->host() + i * bytes, bytes),
                                                   memory->device() + i * bytes, std::move(*end)));
  }
  return made;
}

result<void> launch_tables::upload(cu_stream queue, std::uint64_t bytes) const {
  return context_->check(context_->api().cuMemcpyAsync(device_, host_.data(), bytes, queue), "cuMemcpyAsync");
}

result<void> launch_tables::end_after(cu_stream queue) const {
  return context_->check(context_->api().cuEventRecord(end_->handle(), queue), "cuEventRecord");
}

bool launch_tables::is_free() const {
  return context_->api().cuEventQuery(end_->handle()) == success;
}

}  // namespace cenote::cuda
