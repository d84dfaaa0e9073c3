// From decoded batches of events to entries of a shared index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "services/indexer/backends/shared_facts.hpp"
#include "services/indexer/events/event_batch.hpp"
#include "services/indexer/feed/feeds.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/placement/block_resizer.hpp"
#include "services/indexer/placement/placement_counters.hpp"
#include "services/indexer/placement/publisher_identity.hpp"

namespace cenote::indexer {

/// The server as a placer writes to it, in the order of the calls.
class shared_store {
 public:
  shared_store() = default;
  shared_store(const shared_store&) = delete;
  shared_store& operator=(const shared_store&) = delete;
  virtual ~shared_store() = default;

  virtual void add(std::string_view pod, std::string_view field, std::span<const std::uint64_t> keys,
                   std::span<const std::uint64_t> hashes) = 0;
  virtual void remove(std::string_view pod, std::string_view field, std::span<const std::uint64_t> hashes) = 0;
  virtual void clear(std::string_view pod, std::string_view tier) = 0;
  virtual void add_size(std::string_view model, std::uint32_t block_tokens) = 0;
  /// The key of the block that an engine calls so; waits for the server.
  [[nodiscard]] virtual std::optional<std::uint64_t> find(std::uint64_t hash) = 0;
  /// The keys of all blocks that it calls so, in order; waits for the server.
  [[nodiscard]] virtual std::vector<std::uint64_t> find_all(std::uint64_t hash) = 0;
};

/// Keys by engines' names, of the newest blocks: a table of fixed size whose entries replace one another.
class recent_names {
 public:
  static constexpr std::size_t most_names = std::size_t{1} << 19U;  ///< 8 MiB

  recent_names() : entries_(most_names) {}

  void add(publisher_id publisher, std::uint64_t hash, std::uint64_t key) noexcept {
    entries_[place_of(publisher, hash)] = {mark_of(publisher, hash), key};
  }
  [[nodiscard]] std::optional<std::uint64_t> find(publisher_id publisher, std::uint64_t hash) const noexcept {
    const name_entry& found = entries_[place_of(publisher, hash)];
    return found.mark == mark_of(publisher, hash) ? std::optional(found.key) : std::nullopt;
  }

 private:
  struct name_entry {
    std::uint64_t mark = 0;  ///< 0: there is none
    std::uint64_t key = 0;
  };

  static std::uint64_t mixed(publisher_id publisher, std::uint64_t hash) noexcept {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
    std::uint64_t value = (hash ^ (publisher * odd)) * 0xbf58476d1ce4e5b9;
    value ^= value >> 31U;
    return value * 0x94d049bb133111eb;
  }
  static std::size_t place_of(publisher_id publisher, std::uint64_t hash) noexcept {
    return mixed(publisher, hash) >> 45U;
  }
  static std::uint64_t mark_of(publisher_id publisher, std::uint64_t hash) noexcept {
    return mixed(publisher, hash) | 1U;
  }

  std::vector<name_entry> entries_;
};

struct shared_placer_options {
  std::uint32_t block_tokens = 0;               ///< of all blocks of the index; 0: each publisher's own
  std::size_t memory = std::size_t{256} << 20;  ///< bytes for parts of blocks, a hard bound
};

/// One thread's. Blocks get llm-d's keys from their tokens; engines' hashes name them for removals and parents.
class shared_placer {
 public:
  /// All outlive it.
  shared_placer(const token_processor& keys, shared_store& store, const shared_placer_options& options)
      : processor_(keys),
        store_(store),
        resize_rules_{
            .block_tokens = options.block_tokens, .naming = block_naming::common, .lists = list_place_of(keys.chain())},
        memory_(options.memory),
        parts_memory_(memory_, options.memory) {}

  void open(publisher_id publisher, const publisher_identity& identity);
  void close(publisher_id publisher) { publishers_.erase(publisher); }
  /// True: an event was dropped for want of its parent.
  bool apply(publisher_id publisher, const event_batch& batch);
  /// A pod has no blocks any more, in a tier or (empty) in any.
  void clear(std::string_view pod, std::string_view tier) noexcept;
  /// Null: it is not open.
  [[nodiscard]] const publisher_identity* find(publisher_id publisher) const noexcept;
  [[nodiscard]] const placement_counters& counters() const noexcept { return counters_; }

 private:
  /// A publisher that is open.
  struct shared_publisher {
    publisher_identity identity;
    block_resizer resizer;
  };

  void change(publisher_id number, const shared_publisher& publisher, const event_batch& batch,
              const engine_event& event, bool& is_parent_unknown);
  void store(publisher_id number, const shared_publisher& publisher, const event_batch& batch,
             const engine_event& event, bool& is_parent_unknown);
  void place(publisher_id number, const publisher_identity& publisher, const event_batch& batch,
             const engine_event& event, bool& is_parent_unknown);
  void hold_known(publisher_id number, const shared_publisher& publisher, const event_batch& batch,
                  const engine_event& event);
  [[nodiscard]] std::optional<std::uint64_t> key_of(publisher_id number, std::uint64_t hash);

  const token_processor& processor_;
  shared_store& store_;
  recent_names names_;
  resize_rules resize_rules_;
  index_budget memory_;
  budget_share parts_memory_;
  std::unordered_map<publisher_id, shared_publisher> publishers_;
  placement_counters counters_;
  event_batch resized_;
  std::vector<std::uint64_t> keys_;
};

}  // namespace cenote::indexer
