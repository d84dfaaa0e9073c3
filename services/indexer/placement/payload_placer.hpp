// From payloads to the index: each publisher's decoder, and the placer behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/events/event_adapter.hpp"
#include "services/indexer/forest/forest.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/placement/placer.hpp"

namespace cenote::indexer {

/// Something that an applied batch showed, for its publisher's feed.
struct batch_effect {
  bool is_all_cleared = false;     ///< it took out all blocks of all media: feed::all_cleared()
  bool is_parent_unknown = false;  ///< feed::unknown_parent()
  bool is_unread = false;          ///< it, or a removal in it, could not be read: feed::unread()
};

/// The index's writer alone calls this.
class payload_placer {
 public:
  /// Both outlive it. `block_tokens`: as placer has it.
  payload_placer(forest& index, const token_processor& keys, std::uint32_t block_tokens = 0) noexcept
      : index_(index), blocks_(index, keys, block_tokens) {}

  /// A publisher is known from now on. Errors: as placer::open().
  [[nodiscard]] result<void> open(publisher_id publisher, const publisher_identity& identity);
  /// Its next batch; nothing if it is not known. A payload that is no batch is counted.
  batch_effect apply(publisher_id publisher, std::string_view topic, std::span<const std::byte> payload);
  /// The publisher and its blocks go.
  void close(publisher_id publisher);

  /// The time of what is stored and asked from now on. To be called several times a second, as sweep().
  void set_clock(feed_time now) noexcept;
  /// Gives memory of blocks that are gone back, some milliseconds of work at most: whatever else there is to do, all
  /// comes back within a few calls.
  void sweep() noexcept;

  /// Everything else about publishers.
  [[nodiscard]] placer& blocks() noexcept { return blocks_; }
  [[nodiscard]] const placer& blocks() const noexcept { return blocks_; }

  /// The sum over all publishers, closed ones, too; as many steps as there are open ones.
  [[nodiscard]] placement_counters counters() const noexcept;
  /// Payloads that were no batch, or exceeded a bound.
  [[nodiscard]] std::uint64_t bad_batches() const noexcept { return bad_batches_; }
  /// Publishers that are open.
  [[nodiscard]] std::size_t size() const noexcept { return adapters_.size(); }

 private:
  forest& index_;
  placer blocks_;
  std::unordered_map<publisher_id, event_adapter> adapters_;
  event_batch batch_;
  placement_counters closed_;  ///< of publishers that are closed
  std::uint64_t bad_batches_ = 0;
};

}  // namespace cenote::indexer
