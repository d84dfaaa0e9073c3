// Changes of the tiers to numbered batches: a topic and a row of numbers for each model.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tiers/block_changes/block_changes.hpp"
#include "worker/publisher/event_batcher.hpp"
#include "worker/publisher/event_ring.hpp"

namespace cenote::publishing {

/// Topics are `kv@node:<name>@<model>`. Blocks of two instances of one model are in one row: a key that both have was
/// stored twice there. Not thread-safe.
class event_rows {
 public:
  static constexpr std::size_t most_idle_topics = 1024;  ///< models without an instance whose rows go on

  explicit event_rows(std::string node_name, ring_limits limits = {}) : name_(std::move(node_name)), ring_(limits) {}

  /// A run of the tier's one lasting reader. False: the events would be wrong, so a new reader has to begin.
  [[nodiscard]] bool take(event_medium medium, const change_run& run);
  /// Numbers all that was taken, and keeps it in the ring.
  [[nodiscard]] std::vector<numbered_batch> flush(double timestamp);

  /// Adds the changes of another reader of the tier to batches of its own, by topic. False: they have no events.
  [[nodiscard]] bool translate(event_medium medium, const std::vector<tier_change>& changes,
                               std::map<shared_text, event_batcher>& batchers) const;
  [[nodiscard]] const event_ring& ring() const noexcept { return ring_; }
  /// Topics and the numbers of their next batches.
  [[nodiscard]] std::vector<std::pair<shared_text, std::uint64_t>> rows() const;

 private:
  struct topic_row {
    shared_text topic;
    std::uint64_t next = 0;
    event_batcher waiting{};
    std::uint32_t instances = 0;  ///< of both media together
  };
  struct row_subject {
    topic_row* row = nullptr;
    bool has_groups = false;   ///< more than one: events name it
    std::uint64_t blocks = 0;  ///< there
  };
  using subjects = std::map<std::uint32_t, row_subject>;  ///< by instance

  void begin_anew(event_medium medium);
  void add_subject(event_medium medium, const change_subject& named);
  void drop_subject(event_medium medium, std::uint32_t instance);
  void drop_idle_rows();
  [[nodiscard]] const row_subject* find(event_medium medium, std::uint32_t instance) const;
  [[nodiscard]] bool is_alone(event_medium medium, std::uint32_t instance) const;
  static std::optional<std::uint32_t> group_of(const row_subject& subject, const tier_change& change);

  std::string name_;
  event_ring ring_;
  std::map<std::string, std::unique_ptr<topic_row>> rows_;  ///< by model
  std::array<subjects, enum_size<event_medium>> subjects_{};
};

}  // namespace cenote::publishing
