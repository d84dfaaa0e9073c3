// A sink that keeps everything it is called with, and may be slow or find effects.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "services/indexer/subscriber/batch_sink.hpp"

namespace cenote::indexer {

/// Thread-safe. Lines: "open", "apply PAYLOAD", "clear restart", "mark live", "close", in the order of the calls.
class recording_sink final : public batch_sink {
 public:
  void open(publisher_id publisher, const publisher_identity& identity) override;
  batch_effect apply(publisher_id publisher, std::string_view topic, const feed_apply& batch) override;
  void clear(publisher_id publisher, clear_reason reason) override;
  void mark(publisher_id publisher, const feed_mark& mark) override;
  void close(publisher_id publisher) override;
  std::vector<publisher_id> advance(feed_time now) override;

  /// The lines of all publishers of this pod, one behind the other, without marks.
  [[nodiscard]] std::vector<std::string> lines_of(std::string_view pod) const;
  /// Payloads that the pod's blocks are of: applied since the last clear or close.
  [[nodiscard]] std::vector<std::string> content_of(std::string_view pod) const;
  [[nodiscard]] std::string mark_of(std::string_view pod) const;
  [[nodiscard]] publisher_identity identity_of(std::string_view pod) const;
  /// Pods of the batches in the order in which they were applied.
  [[nodiscard]] std::vector<std::string> order() const;
  [[nodiscard]] std::size_t pods() const;
  [[nodiscard]] std::size_t ticks() const;
  /// Calls that break the contract: before open() or behind close().
  [[nodiscard]] std::size_t faults() const;

  /// apply() waits until release(), from the next call on.
  void hold();
  void release();
  /// True: apply() waits.
  [[nodiscard]] bool is_held() const;
  /// Called at the end of apply(), on its thread.
  void set_hook(std::function<void(std::string_view pod)> hook);
  /// Effects of batches by their payload.
  void set_effect(std::string payload, batch_effect effect);

 private:
  struct record {
    publisher_identity identity;
    std::vector<std::string> lines, content;
    std::string mark = "connecting";
    bool is_open = false;
  };
  [[nodiscard]] record* open_record(publisher_id publisher);

  mutable std::mutex mutex_;
  std::condition_variable released_;
  std::map<publisher_id, record> records_;
  std::map<std::string, batch_effect> effects_;
  std::function<void(std::string_view)> hook_;
  std::vector<std::string> order_;
  std::size_t ticks_ = 0, faults_ = 0;
  bool holds_ = false, is_held_ = false;
};

}  // namespace cenote::indexer
