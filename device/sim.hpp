// A device without hardware: its memory is a memory file, each stream a thread. It keeps to CUDA's order and to nothing
// more, so that under the thread sanitizer whoever looks at bytes before the event is done is a data race.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "device/device.hpp"

namespace cenote {

class sim_device final : public device {
 public:
  sim_device();
  sim_device(const sim_device&) = delete;
  sim_device& operator=(const sim_device&) = delete;
  ~sim_device() override;

  [[nodiscard]] result<device_memory> make(std::uint64_t bytes) override;
  [[nodiscard]] result<device_memory> map(unique_fd descriptor, std::uint64_t bytes) override;
  [[nodiscard]] result<void> register_host(std::span<std::byte> memory) override;
  void unregister_host(std::span<std::byte> memory) noexcept override;
  [[nodiscard]] result<stream_ref> make_stream() override;
  [[nodiscard]] result<stream_ref> outside(void* native) override;
  [[nodiscard]] result<void> copy(const stream_ref& on, std::span<const copy_run> runs) override;
  [[nodiscard]] result<void> gather(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                    layer_range layers) override;
  [[nodiscard]] result<void> scatter(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                     layer_range layers) override;
  [[nodiscard]] result<event_ref> record(const stream_ref& on) override;
  [[nodiscard]] result<void> wait(const stream_ref& on, const event_ref& event) override;
  [[nodiscard]] event_state look(const event_ref& event) override;
  void when(const event_ref& event, std::function<void(result<void>)> call) override;
  [[nodiscard]] standing state() const noexcept override;

  // Faults. From any thread at any time; they concern what is begun afterwards.
  void set_out_of_memory(bool on) noexcept;                 ///< make: no_space
  void set_registration_refused(bool on) noexcept;          ///< register_host: unsupported
  void set_delay(std::chrono::microseconds each) noexcept;  ///< before each copy, gather and scatter
  void fail_work(std::uint32_t number = 1) noexcept;  ///< the number-th from now on writes half of its bytes, then
                                                      ///< the device is away
  void lose_event(std::uint32_t number) noexcept;     ///< the number-th from now on stays pending until the device goes
  void lose_next_event() noexcept { lose_event(1); }
  void hang_at(std::uint32_t number) noexcept;  ///< who gives it the number-th piece of work from now on stays there
  void limit_memory(std::uint64_t bytes) noexcept;  ///< of all that `make` made and that is still mapped here

  /// Host memory that is registered now, bytes.
  [[nodiscard]] std::uint64_t registered_bytes() const;

 private:
  class core;
  std::unique_ptr<core> core_;
};

}  // namespace cenote
