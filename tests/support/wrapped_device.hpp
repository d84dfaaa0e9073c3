// The simulated device with faults that come at a point that the test says, whatever its threads do meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "device/sim.hpp"

namespace cenote::testing {

class wrapped_device : public device {
 public:
  result<device_memory> make(std::uint64_t bytes) override { return sim.make(bytes); }
  result<device_memory> map(unique_fd descriptor, std::uint64_t bytes) override {
    return sim.map(std::move(descriptor), bytes);
  }
  result<void> register_host(std::span<std::byte> memory) override { return sim.register_host(memory); }
  void unregister_host(std::span<std::byte> memory) noexcept override { sim.unregister_host(memory); }
  result<stream_ref> make_stream() override { return sim.make_stream(); }
  result<stream_ref> outside(void* native) override { return sim.outside(native); }
  result<void> copy(const stream_ref& on, std::span<const copy_run> runs) override {
    if (refuses_copies) return fail(error_code::system, "refused");
    if (!fails_copies) return sim.copy(on, runs);
    for (const copy_run& run : runs) std::memcpy(run.to, run.from, run.bytes / 2);
    return {};
  }
  result<void> gather(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                      layer_range layers) override {
    return sim.gather(on, layout, moves, layers);
  }
  result<void> scatter(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                       layer_range layers) override {
    return sim.scatter(on, layout, moves, layers);
  }
  result<event_ref> record(const stream_ref& on) override {
    if (refuses_events) return fail(error_code::closed, "away");
    return sim.record(on);
  }
  result<void> wait(const stream_ref& on, const event_ref& point) override { return sim.wait(on, point); }
  event_state look(const event_ref& point) override { return sim.look(point); }
  void when(const event_ref& point, std::function<void(result<void>)> call) override {
    if (!fails_copies) return sim.when(point, std::move(call));
    sim.when(point, [call = std::move(call)](const result<void>&) { call(fail(error_code::system, "failed")); });
  }
  [[nodiscard]] standing state() const noexcept override { return is_away ? standing::away : sim.state(); }

  sim_device sim;
  bool refuses_copies = false;  ///< the four are the test's thread's
  bool refuses_events = false;
  bool fails_copies = false;  ///< they write half of their bytes, and their events fail
  bool is_away = false;
};

}  // namespace cenote::testing
