// Facts beside the blocks of a shared index: sizes of models' blocks, pods that are hidden or degraded, weights.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace cenote::indexer {

/// Facts at a moment, which do not change.
struct fact_sheet {
  using name_set = std::set<std::string, std::less<>>;

  std::map<std::string, std::vector<std::uint32_t>, std::less<>> sizes;  ///< tokens a block by model or adapter, rising
  std::map<std::string, name_set, std::less<>> degraded;                 ///< pods that have lost events, by model
  name_set hidden;                                                       ///< pods that are left out of answers
  std::map<std::string, double, std::less<>> weights;                    ///< of tiers; others weigh 0
};

/// Thread-safe. A reader compares the version, and takes the lock only when it is another one.
class shared_facts {
 public:
  static constexpr std::size_t most_models = 4096;  ///< and adapters
  static constexpr std::size_t most_sizes = 4;      ///< of a model's blocks

  [[nodiscard]] std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  /// Never null.
  [[nodiscard]] std::shared_ptr<const fact_sheet> sheet() const {
    const std::lock_guard lock(mutex_);
    return sheet_;
  }
  /// False: it is known, or there are too many.
  bool add_size(std::string_view model, std::uint32_t block_tokens) {
    return change([&](fact_sheet& sheet) {
      if (block_tokens == 0 || (!sheet.sizes.contains(model) && sheet.sizes.size() >= most_models)) return false;
      auto& sizes = sheet.sizes[std::string(model)];
      if (sizes.size() >= most_sizes || std::ranges::find(sizes, block_tokens) != sizes.end()) return false;
      sizes.insert(std::ranges::upper_bound(sizes, block_tokens), block_tokens);
      return true;
    });
  }
  void set_marks(std::map<std::string, fact_sheet::name_set, std::less<>> degraded, fact_sheet::name_set hidden) {
    change([&](fact_sheet& sheet) {
      sheet.degraded = std::move(degraded);
      sheet.hidden = std::move(hidden);
      return true;
    });
  }
  void set_weights(std::map<std::string, double, std::less<>> weights) {
    change([&](fact_sheet& sheet) {
      sheet.weights = std::move(weights);
      return true;
    });
  }

 private:
  template <class Change>
  bool change(Change&& apply) {
    const std::lock_guard lock(mutex_);
    auto next = std::make_shared<fact_sheet>(*sheet_);
    if (!apply(*next)) return false;
    sheet_ = std::move(next);
    version_.fetch_add(1, std::memory_order_release);
    return true;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const fact_sheet> sheet_ = std::make_shared<fact_sheet>();  // guarded by mutex_
  std::atomic<std::uint64_t> version_{1};
};

/// Whether the server answers, and what was counted on the way. All threads of the service change it.
struct shared_counters {
  using counter = std::atomic<std::uint64_t>;

  std::atomic<bool> is_serving{false};
  counter commands{0}, failures{0}, connections{0};  ///< of writing
  counter refused{0};                                ///< commands that the server refused
  counter waiting_bytes{0}, dropped_batches{0};      ///< of the writer's queue
  counter rebuilt_publishers{0};
  counter unanswered{0}, failed_questions{0}, strange_fields{0};
};

}  // namespace cenote::indexer
