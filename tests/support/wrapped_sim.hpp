// A simulated device of which a test changes what it wants to.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "device/sim.hpp"

namespace cenote::testing {

class wrapped_sim : public device {
 public:
  result<device_memory> make(std::uint64_t bytes) override { return sim.make(bytes); }
  result<device_memory> map(unique_fd fd, std::uint64_t bytes) override { return sim.map(std::move(fd), bytes); }
  result<void> register_host(std::span<std::byte> memory) override { return sim.register_host(memory); }
  void unregister_host(std::span<std::byte> memory) noexcept override { sim.unregister_host(memory); }
  result<stream_ref> make_stream() override { return sim.make_stream(); }
  result<stream_ref> outside(void* native) override { return sim.outside(native); }
  result<void> copy(const stream_ref& on, std::span<const copy_run> runs) override { return sim.copy(on, runs); }
  result<void> gather(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                      layer_range layers) override {
    return sim.gather(on, layout, moves, layers);
  }
  result<void> scatter(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                       layer_range layers) override {
    return sim.scatter(on, layout, moves, layers);
  }
  result<event_ref> record(const stream_ref& on) override { return sim.record(on); }
  result<void> wait(const stream_ref& on, const event_ref& event) override { return sim.wait(on, event); }
  event_state look(const event_ref& event) override { return sim.look(event); }
  void when(const event_ref& event, std::function<void(result<void>)> call) override {
    sim.when(event, std::move(call));
  }
  [[nodiscard]] standing state() const noexcept override { return sim.state(); }
  [[nodiscard]] std::uint64_t registered_bytes() const { return sim.registered_bytes(); }

  sim_device sim;
};

/// Takes work, and says of none when it has ended, while it is told so.
class silent_device final : public wrapped_sim {
 public:
  result<event_ref> record(const stream_ref& on) override {
    if (is_silent) return fail(error_code::system, "no event is to be had");
    return wrapped_sim::record(on);
  }

  bool is_silent = false;  ///< changed while nobody records
};

}  // namespace cenote::testing
