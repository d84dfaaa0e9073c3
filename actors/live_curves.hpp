// The actor that estimates hits of a running node with other capacities, from its requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "actors/messages.hpp"
#include "actors/request_recording.hpp"
#include "simulation/optimize/sampled_curve.hpp"

namespace cenote {

/// The curve of an instance. It estimates capacities up to four times `room` blocks, or 8,192; a request counts half
/// after 50,000 others. About 0.7 MiB. Not thread-safe.
class live_curve {
 public:
  explicit live_curve(std::uint64_t room);

  void add(std::span<const std::uint64_t> chain) { curve_.add(chain); }
  /// Fills in the requests, up to 25 points from a sixteenth to sixteen times its capacity, three for each power of
  /// two, the capacities for shares of the hits, and the gains of DRAM and of an NVMe tier of `nvme_bytes` (0: there is
  /// none). The NVMe tier is taken for what lies below DRAM in one LRU: no block counts twice.
  void describe(blocks::curve_status& status, std::uint64_t nvme_bytes = 0) const;

 private:
  void add_shares(blocks::curve_status& status) const;
  void add_gain(blocks::curve_status& status, std::string_view tier, std::uint64_t capacity) const;

  simulation::sampled_curve curve_;
};

/// The curves of at most blocks::most_watched instances; of more, the one that was asked for longest ago goes. Not
/// thread-safe.
class live_curve_set {
 public:
  /// `nvme_bytes`: capacity of the NVMe tier, 0 without one.
  explicit live_curve_set(std::uint64_t nvme_bytes = 0) : nvme_bytes_(nvme_bytes) {}

  void add(const blocks::watched_request& request);
  /// Of the instances that the report names. The curves of all others go.
  [[nodiscard]] std::vector<blocks::curve_status> report(const blocks::store_status& tier);
  [[nodiscard]] std::size_t size() const noexcept { return curves_.size(); }

 private:
  struct live_instance {
    live_curve curve;
    std::uint64_t used = 0;  ///< the number of the latest request
  };
  std::map<std::uint32_t, live_instance> curves_;  ///< by instance
  std::uint64_t nvme_bytes_;
  std::uint64_t requests_ = 0;
};

/// The way from a tier to the curves: bounded, since a tier waits for nothing. Thread-safe.
class watched_limit {
 public:
  static constexpr std::uint64_t most_blocks = 65'536;

  /// False: so much is on its way already that these are dropped. At most `most_blocks` and one message are.
  [[nodiscard]] bool admit(const watched_batch& batch) noexcept;
  void arrived(const watched_batch& batch) noexcept;
  /// Requests.
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> blocks_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

/// Owns the curves and a recording, so that the tier only hands requests on.
///
///   watched   requests                                             (the DRAM tier)
///   report    what is estimated of the instances of a report       (node)
///   record    begins a recording; the requests since the last time  (server)
///   end_record                                                     (server)
class live_curves final : public live_curves_actor::base {
 public:
  live_curves(caf::actor_config& config, std::shared_ptr<watched_limit> limit, std::uint64_t nvme_bytes = 0);

  [[nodiscard]] const char* name() const override { return "live_curves"; }

 protected:
  behavior_type make_behavior() override;

 private:
  std::shared_ptr<watched_limit> limit_;
  live_curve_set curves_;
  request_recording recording_;
};

/// Sends requests to the actor within the limit. Never blocks.
[[nodiscard]] std::function<void(std::vector<blocks::watched_request>)> watched_teller(
    live_curves_actor curves, std::shared_ptr<watched_limit> limit);

}  // namespace cenote
