// The one writer of the index: what the subscriber decides and what operators ask for, on the subscriber's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/forest/forest.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/placement/payload_placer.hpp"
#include "services/indexer/subscriber/batch_sink.hpp"

namespace cenote::indexer {

/// Sums since the start, and what the index has at the moment.
struct writer_figures {
  placement_counters events{};
  std::uint64_t bad_batches = 0;         ///< payloads that are no batch, or exceed a bound
  std::uint64_t refused_publishers = 0;  ///< found no room in the index
  std::uint64_t apply_ns = 0;            ///< decoding and applying
  forest_figures index{};
};

/// Calls of batch_sink come from the subscriber's thread; post() and figures() from any.
class indexer_writer final : public batch_sink {
 public:
  using writer_task = std::function<void(forest&, placer&)>;

  static constexpr std::size_t most_tasks = 65'536;
  static constexpr std::size_t most_task_bytes = std::size_t{64} << 20;

  /// Both outlive it. `block_tokens`: as placer has it.
  indexer_writer(forest& index, const token_processor& keys, std::uint32_t block_tokens = 0) noexcept
      : index_(index), payloads_(index, keys, block_tokens) {}

  void open(publisher_id publisher, const publisher_identity& identity) override;
  batch_effect apply(publisher_id publisher, std::string_view topic, const feed_apply& batch) override;
  void clear(publisher_id publisher, clear_reason reason) override;
  void mark(publisher_id publisher, const feed_mark& mark) override;
  void close(publisher_id publisher) override;
  std::vector<publisher_id> advance(feed_time now) override;

  /// Has the writer do something soon; `bytes` is the memory that the writer_task holds. Errors: limit_exceeded: too
  /// much waits.
  [[nodiscard]] result<void> post(writer_task action, std::size_t bytes);
  void set_expectation(std::chrono::milliseconds ttl) { expectation_.store(ttl.count(), std::memory_order_relaxed); }
  /// As of a moment ago.
  [[nodiscard]] writer_figures figures() const;

 private:
  void run_tasks();
  [[nodiscard]] std::vector<publisher_id> find_room(feed_time now);
  void publish_figures(feed_time now);

  forest& index_;
  payload_placer payloads_;
  writer_figures present_;
  std::map<publisher_id, publisher_identity> refused_;  ///< publishers without a place in the index
  publisher_id next_refused_ = 0;                       ///< that is tried first
  feed_time next_try_{};
  feed_time next_sum_{};
  std::atomic<std::int64_t> expectation_{2000};

  mutable std::mutex mutex_;  ///< of what stands below
  std::vector<writer_task> tasks_;
  std::size_t task_bytes_ = 0;
  writer_figures published_;
};

}  // namespace cenote::indexer
