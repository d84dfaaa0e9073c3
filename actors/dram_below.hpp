// The tier below a device's tier: DRAM, reached as a guest of its tier.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/data_path.hpp"
#include "actors/gpu_messages.hpp"
#include "actors/guest_room.hpp"
#include "device/device.hpp"
#include "tiers/gpu/copy_thread.hpp"
#include "tiers/gpu/dram_guest.hpp"

namespace cenote {

struct dram_below_options {
  dram_tier_actor dram;
  std::shared_ptr<cenote::device> on;        ///< `copies` copies with it
  std::string device;                        ///< its name, as device_spec::name
  std::uint32_t number = 1;                  ///< of the device's tier on this node, 1 to most_device_tiers
  std::uint64_t epoch = 0;                   ///< of the worker
  std::uint64_t window = 0;                  ///< bytes on their way down at once; 0: gpu::dram_guest's default
  bool asks_tiers = false;                   ///< a tier below DRAM says what it holds only when it is asked
  data_path* path = nullptr;                 ///< runs what the device's threads have to say; null: CAF's scheduler does
  gpu::copy_thread* copies = nullptr;        ///< begins the copies, and outlives the actor; null: the actor does
  std::chrono::milliseconds drain_after{0};  ///< so long after its start no earlier worker's copy is under way any more
  /// Called once, by the actor: the device can't be trusted with memory any more, and counts as away.
  std::function<void(const std::string& why)> on_lost{};
};

/// Owns a gpu::dram_guest and the actor that is its session of the DRAM tier. It is told its place with `above` before
/// anything else; it hears of what the DRAM tier forgets where it was told to (`hear_removals`). It needs a `tick`
/// every tick_interval. After on_lost() it takes and gives nothing, and has said so (`standing`).
class dram_below final : public dram_below_actor::base {
 public:
  static constexpr std::chrono::milliseconds tick_interval{100};

  dram_below(caf::actor_config& config, dram_below_options options);

  [[nodiscard]] const char* name() const override { return "dram_below"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  void take_place(blocks::edge_number edge);
  [[nodiscard]] caf::result<key_answer_ptr> locate(const key_query& asked);
  [[nodiscard]] caf::result<outcome> forget(const std::vector<blocks::removal>& removals);
  [[nodiscard]] caf::result<outcome> pass_on(const removals_ptr& removals);
  void tick();
  void note(gpu::copy_way way, const gpu::copy_end& end);
  void say_lost(const std::string& why);
  [[nodiscard]] gpu::guest_hooks hooks();
  /// Runs things in this actor's context; from any thread, and not at all once it has ended.
  [[nodiscard]] std::function<void(std::function<void()>)> teller();

  dram_below_options options_;
  guest_actor keeper_;
  std::unique_ptr<guest_room> room_;
  std::unique_ptr<gpu::copies> own_copies_;  ///< without a thread for them
  std::unique_ptr<gpu::dram_guest> guest_;
  std::array<bool, 2> copies_go_well_{true, true};  ///< by way
  dram_tier_actor above_;
  blocks::edge_number edge_ = 0;
  std::optional<std::chrono::steady_clock::time_point> drained_at_;  ///< nothing: it was said
};

/// Of a device's way to DRAM, called "gpu".
[[nodiscard]] tier_report_ptr report_of(const gpu::guest_counters& counters);

}  // namespace cenote
