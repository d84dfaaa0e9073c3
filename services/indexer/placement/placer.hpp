// From decoded batches of events to the index: whose blocks they are about, in which space, under which names.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <expected>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/events/event_batch.hpp"
#include "services/indexer/feed/feeds.hpp"
#include "services/indexer/forest/forest.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/placement/block_resizer.hpp"
#include "services/indexer/placement/expected_blocks.hpp"
#include "services/indexer/placement/placed_publisher.hpp"
#include "services/indexer/placement/pod_members.hpp"

namespace cenote::indexer {

/// Facts about a batch that its publisher's feed wants to know.
struct placement_effect {
  bool is_all_cleared = false;     ///< all that the publisher can have had is gone
  bool is_parent_unknown = false;  ///< an event was dropped for want of its parent
};

/// Applies batches in the order in which feeds give them. A block's place is the chain of its tokens; engines' hashes
/// are names of blocks, in domains of those publishers that agree. The index's writer alone calls this.
class placer {
 public:
  /// Both outlive it. `block_tokens`: of all blocks of the index; 0: each publisher's own.
  placer(forest& index, const token_processor& keys, std::uint32_t block_tokens = 0) noexcept;

  /// A publisher is known from now on. `invalid_argument`: a name is too long, or it is known; `limit_exceeded`: there
  /// are too many pods or models.
  [[nodiscard]] result<void> open(publisher_id publisher, const publisher_identity& identity);
  /// Its next batch; nothing if it is not known.
  placement_effect apply(publisher_id publisher, const event_batch& batch);
  /// All its blocks of all media go.
  void clear(publisher_id publisher);
  /// The publisher and its blocks go.
  void close(publisher_id publisher);
  /// Leaves its pod out of answers, or marks it as one that has lost events.
  void mark(publisher_id publisher, member_mark state);
  /// All blocks of a pod go, in one medium or in all. False if the medium is unknown.
  bool clear(std::string_view pod, std::string_view medium);

  /// A router has sent a prompt with these keys to a pod: its blocks count as the GPU's until the events come, or
  /// `ttl` ends, which is at most the time that was set. False: the pod has no publisher, or a bound is reached.
  bool expect(std::string_view pod, std::string_view model, std::span<const std::uint64_t> keys, feed_time now,
              std::chrono::milliseconds ttl);
  /// The time for which expected blocks count, a fifth more at most.
  void set_expectation(std::chrono::milliseconds ttl) noexcept { expected_.set_ttl(ttl); }
  /// Ends what is expected no more, makes nodes' blocks count for pods that have come, and marks those whose blocks
  /// memory has dropped. To be called several times a second.
  void advance(feed_time now) {
    expected_.advance(now);
    members_.link();
    mark_dropped();
  }

  /// Calls `visit(model, rank, kind, holder)` for each holder of a pod that has had blocks.
  template <class Visit>
  void visit_holders(std::string_view pod, Visit&& visit) const {
    for (const auto& [number, publisher] : publishers_) {
      if (publisher->identity.pod != pod) continue;
      for (const opened_holder& each : publisher->holders) visit(publisher->model, each.rank, each.kind, each.number);
    }
  }
  /// Null: it is not known. Until the next open() or close().
  [[nodiscard]] const placed_publisher* find(publisher_id publisher) const noexcept;

 private:
  using publisher_map = std::unordered_map<publisher_id, std::unique_ptr<placed_publisher>>;

  void set_cuts(placed_publisher& node);
  void change_all(placed_publisher& publisher, const event_batch& batch, placement_effect& effect);
  void change(placed_publisher& publisher, const event_batch& batch, const engine_event& event,
              placement_effect& effect);
  void store(placed_publisher& publisher, const event_batch& batch, const engine_event& event,
             placement_effect& effect);
  void place(placed_publisher& publisher, const event_batch& batch, const engine_event& event, holder stored_by,
             placement_effect& effect);
  [[nodiscard]] std::expected<std::size_t, store_refusal> store_in(const placed_publisher& publisher,
                                                                   const adapter_domains& domains, block_number parent,
                                                                   std::span<const std::uint64_t> hashes,
                                                                   holder stored_by, std::uint32_t step);
  void hold_known(placed_publisher& publisher, const event_batch& batch, const engine_event& event, holder stored_by);
  [[nodiscard]] block_number name_node_block(placed_publisher& node, std::uint64_t hash, std::uint64_t leading,
                                             medium_number medium);
  void hold_node_blocks(placed_publisher& node, const event_batch& batch, const engine_event& event, holder stored_by);
  void resolve_pending(placed_publisher& publisher, name_domain domain, std::span<const std::uint64_t> hashes);
  void hold_pending(placed_publisher& node, name_domain domain, std::span<const std::uint64_t> hashes,
                    medium_mask media);
  void remove(placed_publisher& publisher, const event_batch& batch, const engine_event& event);
  [[nodiscard]] block_number block_of_node(const placed_publisher& node, std::uint64_t hash) const noexcept;
  void remove_node_blocks(placed_publisher& node, const event_batch& batch, const engine_event& event);
  void clear_media(placed_publisher& publisher, const event_batch& batch, placement_effect& effect);
  void clear_node_medium(placed_publisher& node, const event_batch& batch, const engine_event& event);
  [[nodiscard]] std::uint32_t step_of(const engine_event& event) const noexcept;
  block_change hold(std::span<const block_number> blocks, std::uint32_t step, holder stored_by);
  [[nodiscard]] std::size_t remove(std::span<const block_number> blocks, std::uint32_t step, holder removed);
  [[nodiscard]] bool is_repeat(block_number last, holder stored_by) const noexcept;
  template <class Predicate>
  void end_holders(placed_publisher& publisher, Predicate&& is_ended);
  void end_shared_holders(placed_publisher& publisher);
  void end_groups(placed_publisher& publisher);

  [[nodiscard]] cache_group* group_of(placed_publisher& publisher, const engine_event& event);
  [[nodiscard]] bool add_size(placed_publisher& publisher, std::uint32_t block_tokens);
  [[nodiscard]] bool add_group_slot(placed_publisher& publisher, cache_group& added, const engine_event& event);
  [[nodiscard]] holder open_holder(placed_publisher& publisher, std::uint16_t rank, holder_kind kind);
  [[nodiscard]] holder find_holder(const placed_publisher& publisher, std::uint16_t rank,
                                   holder_kind kind) const noexcept;
  [[nodiscard]] block_number block_of(const placed_publisher& publisher, const adapter_domains& domains,
                                      std::uint64_t hash) const noexcept;
  [[nodiscard]] block_number parent_of(const placed_publisher& publisher, const adapter_domains& domains,
                                       std::uint64_t hash) const noexcept;
  [[nodiscard]] bool is_held(const placed_publisher& publisher, block_number block) const noexcept;
  void mark_dropped();
  void apply_mark(const placed_publisher& publisher);
  [[nodiscard]] bool add_rank(placed_publisher& publisher, std::uint32_t rank);
  void set_slots(placed_publisher& publisher, std::uint32_t slots);
  void set_step(placed_publisher& publisher, std::uint32_t step);
  void join_machine(placed_publisher& added);
  void leave_machine(placed_publisher& removed);

  forest& index_;
  const token_processor& processor_;
  resize_rules resize_rules_;
  budget_share parts_memory_;  ///< of parts of blocks: the rest is for blocks
  name_domains domains_;
  pod_members members_;
  expected_blocks expected_;
  publisher_map publishers_;
  std::map<std::pair<model_number, std::string>, machine_publishers> machines_;  ///< by the node's pod
  std::uint64_t evicted_held_ = 0;                                               ///< when pods were marked last
  event_batch resized_;
  std::vector<std::uint64_t> keys_;
  std::vector<block_number> blocks_;
};

}  // namespace cenote::indexer
