// Follows the pods of a label at the API server of Kubernetes, on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "config/indexer_rules.hpp"
#include "core/error.hpp"
#include "services/indexer/discovery/pod_table.hpp"
#include "transport/http/request_client.hpp"

namespace cenote::indexer {

struct kubernetes_options {
  std::string server{};   ///< "https://HOST:PORT", "http://HOST:PORT"; empty: of the variables of a pod's process
  std::string account{};  ///< folder with `token` and `ca.crt`; without TLS neither is read
  std::string selector{};
  std::string place{};  ///< namespace; empty: all
};

/// Sums since the start.
struct discovery_counters {
  std::uint64_t pods = 0;      ///< now
  std::uint64_t lists = 0;     ///< that were read whole
  std::uint64_t failures = 0;  ///< lists and watches that broke off
  std::uint64_t refused = 0;   ///< pods and changes that were passed over
};

/// Lists once, then watches, and lists anew where a watch breaks off. While the server is away the last pods stay.
/// Thread-safe.
class kubernetes_watch {
 public:
  /// Errors: invalid_argument (the server; there is none).
  [[nodiscard]] static result<std::unique_ptr<kubernetes_watch>> start(kubernetes_options options);
  kubernetes_watch(const kubernetes_watch&) = delete;
  kubernetes_watch& operator=(const kubernetes_watch&) = delete;
  ~kubernetes_watch() = default;

  /// The pods if they are others than at the last call, or the first.
  [[nodiscard]] std::optional<pod_addresses> take();
  /// Whether there was a whole list.
  [[nodiscard]] bool is_listed() const;
  [[nodiscard]] discovery_counters counters() const;
  /// A question under way is cut off.
  void stop() noexcept { thread_.request_stop(); }

 private:
  kubernetes_watch(kubernetes_options options, config::web_server server);

  void run(const std::stop_token& stop);
  [[nodiscard]] result<void> list(const std::stop_token& stop);
  [[nodiscard]] result<void> watch(const std::stop_token& stop);
  [[nodiscard]] std::string target() const;
  [[nodiscard]] result<void> ask(const std::string& target, std::chrono::milliseconds limit,
                                 const std::stop_token& stop, const http::part_visitor& visit);
  void publish(std::uint64_t lists);
  void count_refused();
  void wait(const std::stop_token& stop, std::chrono::milliseconds time);

  kubernetes_options options_;
  config::web_server server_;
  pod_table table_;  ///< the thread's
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::optional<pod_addresses> news_;
  discovery_counters counters_;
  std::jthread thread_;  ///< the last: it ends first
};

}  // namespace cenote::indexer
