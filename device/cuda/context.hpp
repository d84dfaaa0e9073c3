// The context of one GPU in this process, and what lives in it. All of it holds on to the context.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/cuda/driver.hpp"
#include "device/device.hpp"

namespace cenote::cuda {

/// The GPU's primary context, which the engine's framework uses too: addresses and streams are the same. Thread-safe.
class context {
 public:
  /// `name`: GPU-<uuid>, or a number. Errors: unsupported.
  [[nodiscard]] static result<std::shared_ptr<context>> retain(std::shared_ptr<const driver> api,
                                                               std::string_view name);
  context(const context&) = delete;
  context& operator=(const context&) = delete;
  ~context();

  /// Makes the context that of this thread as long as it lives. An engine may be capturing a graph in another thread
  /// meanwhile: calls that such a capture does not allow would end it, but for those of a thread in relaxed mode.
  class scope {
   public:
    explicit scope(const context& entered) noexcept : api_(*entered.api_) {
      pushed_ = api_.cuCtxPushCurrent_v2(entered.handle_) == success;
      api_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;
    ~scope() {
      api_.cuThreadExchangeStreamCaptureMode(&mode_);
      cu_context before = nullptr;
      if (pushed_) api_.cuCtxPopCurrent_v2(&before);
    }

   private:
    const driver& api_;
    bool pushed_ = false;
    int mode_ = relaxed_capture;  // that of the thread, in exchange
  };

  [[nodiscard]] const driver& api() const noexcept { return *api_; }
  [[nodiscard]] cu_device number() const noexcept { return device_; }
  /// In a child of the process that made it: a context does not survive a fork, so that nothing may be called, and what
  /// was made in it stays the parent's.
  [[nodiscard]] bool in_child() const noexcept;

  /// Success, or the error "call: NAME (number)"; a sticky code takes the context away. Only for codes of calls that
  /// were made within a scope.
  [[nodiscard]] result<void> check(cu_result code, std::string_view call) noexcept(false);
  [[nodiscard]] bool away() const noexcept { return loss_.load(std::memory_order_relaxed) != success; }
  /// The driver's name of the code that took it away; empty: none did.
  [[nodiscard]] std::string loss() const;
  /// An attribute of the GPU; `unknown` where the driver has none.
  [[nodiscard]] int attribute(int which, int unknown) const noexcept;

 private:
  context(std::shared_ptr<const driver> api, cu_device device, cu_context handle) noexcept;

  std::shared_ptr<const driver> api_;
  cu_device device_;
  cu_context handle_;
  pid_t process_;
  std::atomic<cu_result> loss_{success};  // the first sticky code
};
using context_ref = std::shared_ptr<context>;

/// A stream of one's own, or an engine's.
class cuda_stream final : public stream {
 public:
  /// Of the highest priority: what is given to it is short, and copies wait for it.
  [[nodiscard]] static result<stream_ref> create(const context_ref& in);
  [[nodiscard]] static stream_ref outside(const context_ref& in, void* native);
  cuda_stream(context_ref in, cu_stream handle, bool owned) noexcept;
  cuda_stream(const cuda_stream&) = delete;
  cuda_stream& operator=(const cuda_stream&) = delete;
  ~cuda_stream() override;
  [[nodiscard]] void* native() const noexcept override { return handle_; }

 private:
  context_ref context_;
  cu_stream handle_;
  bool owned_;
};
[[nodiscard]] inline cu_stream handle_of(const stream_ref& on) noexcept {
  return static_cast<cu_stream>(on->native());
}

class cuda_event final : public event {
 public:
  [[nodiscard]] static result<std::shared_ptr<cuda_event>> create(const context_ref& in);
  cuda_event(context_ref in, cu_event handle) noexcept;
  cuda_event(const cuda_event&) = delete;
  cuda_event& operator=(const cuda_event&) = delete;
  ~cuda_event() override;
  [[nodiscard]] cu_event handle() const noexcept { return handle_; }
  /// Once it has ended it stays so, whatever becomes of the context.
  [[nodiscard]] event_state look();

 private:
  context_ref context_;
  cu_event handle_;
  std::atomic<event_state> known_{event_state::pending};
};

/// Device memory that can be handed on as a descriptor: made (descriptor < 0), or somebody's.
[[nodiscard]] result<device_memory> share_memory(const context_ref& in, std::uint64_t bytes, unique_fd descriptor);

}  // namespace cenote::cuda
