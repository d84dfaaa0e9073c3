// The view of readers of a manager: immutable, and replaced as a whole when the registry changes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "services/manager/index/instance_index.hpp"
#include "services/manager/registry/registry.hpp"
#include "services/manager/service/location_text.hpp"
#include "services/manager/storages/storage_health.hpp"

namespace cenote::manager {

struct served_storage {
  std::shared_ptr<const storage_terms> terms{};
  std::shared_ptr<const storage_signal> signal{};  ///< changes beside the view

  [[nodiscard]] bool is_readable() const noexcept {
    return terms->is_enabled && manager::is_readable(signal->condition());
  }
};

/// By number; null: there is none.
using storage_table = std::array<std::shared_ptr<const served_storage>, most_storages>;

/// An instance and its index. Thread-safe.
class served_instance {
 public:
  served_instance(std::shared_ptr<const instance_terms> terms, std::shared_ptr<const group_terms> group,
                  std::shared_ptr<const instance_index> index, std::shared_ptr<const storage_table> storages);
  served_instance(const served_instance&) = delete;
  served_instance& operator=(const served_instance&) = delete;
  ~served_instance();

  [[nodiscard]] const instance_terms& terms() const noexcept { return *terms_; }
  [[nodiscard]] const group_terms& group() const noexcept { return *group_; }
  [[nodiscard]] const instance_index& index() const noexcept { return *index_; }
  [[nodiscard]] const storage_table& storages() const noexcept { return *storages_; }
  /// The texts of addresses in a storage that is in the table; made when they are first asked for.
  [[nodiscard]] const storage_texts& texts(std::uint8_t storage) const;
  /// Whether this is still what these make.
  [[nodiscard]] bool is_of(const instance_terms* terms, const group_terms* group, const instance_index* index,
                           const storage_table* storages) const noexcept {
    return terms_.get() == terms && group_.get() == group && index_.get() == index && storages_.get() == storages;
  }

 private:
  std::shared_ptr<const instance_terms> terms_;
  std::shared_ptr<const group_terms> group_;
  std::shared_ptr<const instance_index> index_;
  std::shared_ptr<const storage_table> storages_;
  mutable std::array<std::atomic<const storage_texts*>, most_storages> texts_{};
};

struct served_view {
  manager_registry settings{};
  std::uint32_t epoch = 0;
  bool is_ready = false;  ///< recovered: the writer takes requests
  std::shared_ptr<const storage_table> storages{};
  std::map<std::string, std::shared_ptr<const served_instance>, std::less<>> instances{};
};

/// Where the writer puts the view, and readers take it. Its lock is held for the copy of a pointer, and readers take it
/// only where there is another view: libstdc++'s atomic shared pointers order a load before a later store too weakly.
/// Thread-safe.
class view_board {
 public:
  view_board() : view_(std::make_shared<const served_view>()) {}

  void show(std::shared_ptr<const served_view> view) {
    {
      const std::lock_guard lock(mutex_);
      view_.swap(view);
    }
    version_.fetch_add(1, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  [[nodiscard]] std::shared_ptr<const served_view> take() const {
    const std::lock_guard lock(mutex_);
    return view_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const served_view> view_;
  std::atomic<std::uint64_t> version_{1};
};

/// The view of one thread: it looks at the board only when there is another one.
class view_reader {
 public:
  explicit view_reader(const view_board& board) noexcept : board_(board) {}

  [[nodiscard]] const std::shared_ptr<const served_view>& view() {
    if (const std::uint64_t version = board_.version(); version != version_) {
      view_ = board_.take();
      version_ = version;
    }
    return view_;
  }

 private:
  const view_board& board_;
  std::uint64_t version_ = 0;
  std::shared_ptr<const served_view> view_;
};

/// Records that reads used, on their way to the writer. Any thread adds, one takes; neither waits.
class use_list {
 public:
  static constexpr std::size_t most_waiting = std::size_t{4} << 20U;  ///< records

  struct used_records {
    std::uint64_t instance = 0;
    std::vector<std::uint32_t> records{};  ///< head to tail
    used_records* next = nullptr;
  };

  use_list() = default;
  use_list(const use_list&) = delete;
  use_list& operator=(const use_list&) = delete;
  ~use_list();

  /// Dropped if most_waiting records are there: then uses do not count for a moment.
  void add(std::uint64_t instance, std::vector<std::uint32_t> records);
  /// All that came, the oldest first.
  [[nodiscard]] std::vector<std::unique_ptr<used_records>> take();

 private:
  std::atomic<used_records*> newest_{nullptr};
  std::atomic<std::size_t> waiting_{0};
};

}  // namespace cenote::manager
