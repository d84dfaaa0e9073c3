// A storage that a plug-in serves: a program that deletes and probes for the manager.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/manager/storages/plugin_channel.hpp"
#include "services/manager/storages/storage_backend.hpp"

namespace cenote::manager {

/// Of all plug-ins together, since the start.
struct plugin_counters {
  std::atomic<std::uint64_t> starts{0};    ///< of programs, also such as failed
  std::atomic<std::uint64_t> failures{0};  ///< programs that were ended, or could not be started
};

/// The storage in a plug-in's questions.
struct plugin_subject {
  std::string name{};
  std::string_view type{};  ///< name of the plug-in
  std::string spec{};       ///< a JSON object: what the storage was added with
};

struct plugin_options {
  std::chrono::milliseconds timeout{2'000};  ///< of an operation
  std::shared_ptr<plugin_counters> counters = std::make_shared<plugin_counters>();
  std::function<plugin_time()> clock = [] { return std::chrono::steady_clock::now(); };
};

/// Asks with a line of JSON, {"id":1,"op":"probe"|"remove"|"exist","storage":{…},"uris":[…]}, and takes one as the
/// answer, {"id":1,"results":[…]} or {"id":1,"error":"…"}. A plug-in whose answer is anything else, or comes too late,
/// is ended: what it was asked is not known, and so has failed. It is started again with the next call, behind a pause
/// that doubles from failure to failure, and during which calls fail.
class plugin_storage final : public storage_backend {
 public:
  static constexpr std::size_t most_uris = 128;  ///< of a question
  static constexpr std::chrono::milliseconds first_pause{500};
  static constexpr std::chrono::milliseconds longest_pause{60'000};
  /// For the first answer of a program, which may have much to load.
  static constexpr std::chrono::milliseconds start_limit{30'000};
  static constexpr std::size_t longest_reason = 300;  ///< bytes of a plug-in's text

  plugin_storage(const plugin_subject& subject, std::unique_ptr<plugin_launcher> launcher, plugin_options options);

  [[nodiscard]] result<> remove(const removal_item& item) override;
  [[nodiscard]] std::size_t most_items() const noexcept override { return most_uris; }
  [[nodiscard]] std::vector<result<>> remove_together(std::span<const removal_item> items) override;
  [[nodiscard]] std::vector<result<bool>> exist_together(std::span<const removal_item> items) override;
  /// A plug-in that gives no room has all room.
  [[nodiscard]] result<storage_room> probe() override;
  void cancel() noexcept override { launcher_->cancel(); }

 private:
  /// Errors: not_running (it is not started yet), those of a launcher.
  [[nodiscard]] result<> open();
  /// The line that answers an operation. Errors: those of a channel and of open().
  [[nodiscard]] result<std::string> ask(std::string_view operation, std::span<const removal_item> items);
  /// The results of an operation, one an item.
  [[nodiscard]] std::vector<result<bool>> ask_each(std::string_view operation, std::span<const removal_item> items);
  void note_failure(const error& reason);
  void note_success() noexcept;

  std::string subject_;  ///< a JSON object
  std::unique_ptr<plugin_launcher> launcher_;
  plugin_options options_;
  std::unique_ptr<plugin_channel> channel_;
  std::uint64_t last_id_ = 0;
  bool has_answered_ = false;  ///< the program that runs
  std::chrono::milliseconds pause_ = first_pause;
  plugin_time next_start_{};
  std::string last_reason_;
};

}  // namespace cenote::manager
