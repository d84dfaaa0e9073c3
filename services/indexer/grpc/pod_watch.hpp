// Streams of pods' states.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "services/indexer/grpc/indexer.pb.h"
#include "services/indexer/http/indexer_calls.hpp"
#include "transport/grpc/call_handler.hpp"

namespace cenote::indexer {

namespace messages = ::indexer::v1;

/// Sends each watcher all pods, and then those that have changed. Changes have numbers, and a watcher has the number up
/// to which it knows them: one that reads slowly gets the latest state later, and no more than one message waits for
/// it. Looks at the pods once a second, while there are watchers, on a thread of its own.
class pod_watch {
 public:
  static constexpr std::size_t most_watchers = 64;

  explicit pod_watch(std::unique_ptr<indexer_calls> calls);
  pod_watch(const pod_watch&) = delete;
  pod_watch& operator=(const pod_watch&) = delete;
  ~pod_watch() { stop(); }

  /// Takes over a call, which it ends if there are too many or it has stopped. Thread-safe.
  void add(std::shared_ptr<rpc::open_call> call);
  /// Ends all calls, and the thread.
  void stop() noexcept;

 private:
  using row_name = std::tuple<std::string, std::uint16_t, std::string, std::string>;  ///< pod, rank, model, publisher
  struct row_state {
    std::string state{};
    std::optional<std::uint64_t> last_seq{};
    std::array<std::uint64_t, most_media> blocks{};
    std::uint64_t gaps = 0, replayed = 0;
    double behind_s = 0;
    bool is_removed = false;
    bool operator==(const row_state&) const = default;
  };
  struct pod_row {
    row_state state;
    std::uint64_t change = 0;  ///< its last one
    std::uint64_t look = 0;    ///< in which it was sent last
  };
  using row_map = std::map<row_name, pod_row>;
  struct pod_watcher {
    std::shared_ptr<rpc::open_call> call;
    std::uint64_t sent = 0;  ///< changes that it has
    bool is_new = true;
  };

  void run();
  /// Takes over those that came; false: it is to end.
  [[nodiscard]] bool wait(std::chrono::steady_clock::time_point due);
  void look();
  void set(row_map::iterator place, row_state state);
  void forget_removed();
  /// True: some watcher does not have all yet.
  [[nodiscard]] bool send_changes();
  void send_to(pod_watcher& target);
  /// The changes that it lacks, or some of them; `last` is the last one of these.
  [[nodiscard]] std::string message_for(const pod_watcher& target, std::uint64_t& last) const;
  void write_state(const row_state& state, messages::PodState& entry) const;

  std::unique_ptr<indexer_calls> calls_;
  row_map rows_;
  std::map<std::uint64_t, row_map::iterator> changes_;  ///< the rows by their last change
  std::uint64_t last_change_ = 0;
  std::uint64_t looks_ = 0;
  std::vector<pod_watcher> watchers_;

  std::mutex mutex_;  ///< of what stands below
  std::condition_variable wake_;
  std::vector<std::shared_ptr<rpc::open_call>> arrived_;
  std::size_t count_ = 0;  ///< watchers, and those that arrived
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace cenote::indexer
