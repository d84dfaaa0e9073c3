// Writes what the subscriber decides to a shared index: a bounded queue, and a thread that waits for the server.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/backends/shared_facts.hpp"
#include "services/indexer/backends/shared_line.hpp"
#include "services/indexer/backends/shared_placer.hpp"
#include "services/indexer/events/event_adapter.hpp"
#include "services/indexer/subscriber/batch_sink.hpp"

namespace cenote::indexer {

/// Sums since the start.
struct shared_figures {
  placement_counters events{};
  std::uint64_t bad_batches = 0;  ///< payloads that are no batch, or exceed a bound
  std::uint64_t apply_ns = 0;     ///< decoding
};

/// Calls of batch_sink come from the subscriber's thread; the others from any. While the server is away batches wait;
/// beyond the bound of the queue those of a publisher are dropped, it counts as degraded, and when the server is back
/// advance() gives it, so that its blocks are asked for anew. The same becomes of all when the server has lost its
/// data.
class shared_writer final : public batch_sink {
 public:
  static constexpr std::size_t most_waiting_bytes = std::size_t{64} << 20U;
  static constexpr std::size_t most_waiting_tasks = 65'536;

  /// All outlive it. Errors: system: no descriptor or thread can be had.
  [[nodiscard]] static result<std::unique_ptr<shared_writer>> start(redis::server_access access,
                                                                    const token_processor& keys,
                                                                    const shared_placer_options& options,
                                                                    shared_facts& facts, shared_counters& counters);
  shared_writer(const shared_writer&) = delete;
  shared_writer& operator=(const shared_writer&) = delete;
  ~shared_writer() override;

  void open(publisher_id publisher, const publisher_identity& identity) override;
  batch_effect apply(publisher_id publisher, std::string_view topic, const feed_apply& batch) override;
  void clear(publisher_id publisher, clear_reason reason) override;
  void mark(publisher_id publisher, const feed_mark& mark) override;
  void close(publisher_id publisher) override;
  std::vector<publisher_id> advance(feed_time now) override;

  /// Takes all entries from a pod, in a tier or (empty) all, soon; `done` is called when they are gone. Errors:
  /// limit_exceeded: too much waits.
  [[nodiscard]] result<void> clear_pod(std::string_view pod, std::string_view tier, std::function<void()> done);
  [[nodiscard]] shared_figures figures() const;
  /// Ends the thread; what waits is dropped.
  void stop() noexcept;

 private:
  enum class task_kind : std::uint8_t { open, batch, clear, close };
  /// Something for the thread to do.
  struct write_task {
    task_kind kind{};
    publisher_id publisher = 0;
    publisher_identity identity{};
    event_batch batch{};
    std::optional<std::uint64_t> life{};  ///< of the first batch: its fingerprint
    std::string pod{}, tier{};
    shared_line::clear_reach reach = shared_line::clear_reach::all_keys_once;
    std::function<void()> done{};
    std::size_t bytes = 0;
  };
  /// The facts of the subscriber's thread about a publisher.
  struct writer_publisher {
    publisher_identity identity;
    event_adapter adapter;
    feed_mark mark{};
    bool is_new = true;    ///< none of its batches has come
    bool is_lost = false;  ///< batches were dropped, and it is to begin anew
  };

  shared_writer(std::unique_ptr<shared_line> line, const token_processor& keys, const shared_placer_options& options,
                shared_facts& facts, shared_counters& counters);
  void begin();
  [[nodiscard]] bool enqueue(write_task added);
  [[nodiscard]] static std::size_t bytes_of(const event_batch& batch) noexcept;
  void lose(writer_publisher& publisher);
  void lose_others(publisher_id publisher, std::string_view pod);
  void take_reports();
  void publish_marks();

  // The thread's.
  void run();
  void carry_out(write_task& next);
  void empty_pod(std::string_view pod, std::string_view tier, shared_line::clear_reach reach);
  void check_life(const write_task& next, const publisher_identity& publisher);

  shared_facts& facts_;
  shared_counters& counters_;
  std::unique_ptr<shared_line> line_;
  shared_placer placer_;

  std::map<publisher_id, writer_publisher> publishers_;    ///< the subscriber's thread's
  std::map<std::string, feed_time, std::less<>> rebuilt_;  ///< pods, and when their publishers began anew
  bool has_marks_changed_ = false;
  std::uint64_t data_set_ = 0;  ///< of the line, whose publishers were asked for

  mutable std::mutex mutex_;  ///< of what stands below
  std::condition_variable arrival_;
  std::deque<write_task> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::set<publisher_id> orphans_;  ///< publishers an event of which had no parent
  std::set<publisher_id> reborn_;   ///< publishers whose pod was cleared, since the server knew an earlier life
  shared_figures figures_;
  bool is_stopping_ = false;

  std::thread thread_;
};

}  // namespace cenote::indexer
