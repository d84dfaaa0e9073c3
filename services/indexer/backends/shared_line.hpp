// The writing line to a shared index: commands in pipelines, again and again until the server has carried them out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/backends/shared_facts.hpp"
#include "services/indexer/backends/shared_placer.hpp"
#include "transport/redis/waiting_client.hpp"

namespace cenote::indexer {

/// All commands may be carried out twice, so that a pipeline whose connection broke is sent again whole. For one
/// thread, but stop() and data_set(), which any may call.
class shared_line final : public shared_store {
 public:
  [[nodiscard]] static result<std::unique_ptr<shared_line>> make(redis::server_access access, shared_facts& facts,
                                                                 shared_counters& counters);

  void add(std::string_view pod, std::string_view field, std::span<const std::uint64_t> keys,
           std::span<const std::uint64_t> hashes) override;
  void remove(std::string_view pod, std::string_view field, std::span<const std::uint64_t> hashes) override;
  void clear(std::string_view pod, std::string_view tier) override { clear(pod, tier, clear_reach::all_keys_once); }
  void add_size(std::string_view model, std::uint32_t block_tokens) override;
  [[nodiscard]] std::optional<std::uint64_t> find(std::uint64_t hash) override;
  [[nodiscard]] std::vector<std::uint64_t> find_all(std::uint64_t hash) override;

  /// The keys that are looked through for entries of a pod whose own set is empty.
  enum class clear_reach : std::uint8_t {
    own_keys,       ///< none
    all_keys_once,  ///< all, if they were not for this pod: others may have written them
    all_keys,
  };
  void clear(std::string_view pod, std::string_view tier, clear_reach reach);
  /// Sets a text and gives the one of before.
  [[nodiscard]] std::optional<std::string> replace(std::string_view key, std::string_view text);

  /// Sends what waits.
  void flush();
  /// Asks whether the server answers, when nothing else has for a while.
  void look();
  /// Grows each time that the server is found without this index's data.
  [[nodiscard]] std::uint64_t data_set() const noexcept { return data_set_.load(std::memory_order_acquire); }
  /// From now on all calls return at once, without having done anything.
  void stop() noexcept;

 private:
  using texts = std::vector<std::string>;

  shared_line(redis::waiting_client client, shared_facts& facts, shared_counters& counters)
      : client_(std::move(client)), facts_(facts), counters_(counters) {}

  void flush_if_long();
  /// Runs the commands until they are carried out. Nothing: the line is stopped.
  [[nodiscard]] std::optional<std::vector<texts>> carry_out(std::span<const std::string> commands);
  [[nodiscard]] result<std::vector<texts>> attempt(std::span<const std::string> commands);
  [[nodiscard]] result<void> greet_data(redis::steady_time deadline);
  void pause(std::chrono::milliseconds time);
  [[nodiscard]] bool clear_page(std::string_view pod, std::string_view begin, texts& page);

  redis::waiting_client client_;
  shared_facts& facts_;
  shared_counters& counters_;
  std::vector<std::string> commands_;
  std::size_t counted_ = 0, command_bytes_ = 0;            ///< of the commands, the first ones
  std::set<std::string, std::less<>> scanned_;             ///< pods for which all keys were looked through
  std::set<std::pair<std::string, std::uint32_t>> sizes_;  ///< that the server has
  std::uint64_t greeted_ = 0;                              ///< connections whose data set was looked at
  std::string data_mark_;                                  ///< of the server's data; empty: none was seen
  std::atomic<std::uint64_t> data_set_{0};
  std::chrono::milliseconds back_off_{0};
  redis::steady_time next_look_{};

  std::mutex mutex_;
  std::condition_variable stop_signal_;
  std::atomic<bool> is_stopping_{false};
};

}  // namespace cenote::indexer
