// The indexer as a service: its index, its subscriber, its HTTP and gRPC servers, made from the configuration.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/node_config.hpp"
#include "core/error.hpp"
#include "services/indexer/discovery/kubernetes_watch.hpp"
#include "services/indexer/grpc/indexer_rpc.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/service/memory_index.hpp"
#include "services/indexer/service/question_counts.hpp"
#include "services/indexer/service/shared_index.hpp"
#include "services/indexer/subscriber/subscriber.hpp"
#include "services/indexer/text/text_tokenizer.hpp"
#include "services/indexer/text/tokenizer_process.hpp"
#include "transport/http/request_server.hpp"

namespace cenote::indexer {

/// One per process. Its own thread calls it; the threads that it starts have all signals blocked that the caller has.
class indexer_process {
 public:
  /// Binds everything and begins. Errors: invalid_config (keys, a file that cannot be read), and those of
  /// subscriber::start(), request_server::bind() and indexer_rpc::start().
  [[nodiscard]] static result<std::unique_ptr<indexer_process>> start(const config::node_config& config);
  indexer_process(const indexer_process&) = delete;
  indexer_process& operator=(const indexer_process&) = delete;
  ~indexer_process();

  /// Takes over what may change while it runs: weights, the time of expectations, publishers.
  [[nodiscard]] result<void> reload(const config::node_config& config);
  /// Reads the file of discovery if it is another one than before, takes the pods that Kubernetes has now, and starts a
  /// tokenizer that has died. To be called
  /// about twice a second, by the thread that started it.
  void look();
  /// TCP addresses at which it answers, and ZMQ's at which publishers connect.
  [[nodiscard]] const std::vector<endpoint>& addresses() const noexcept { return server_->addresses(); }
  /// Of gRPC.
  [[nodiscard]] std::vector<endpoint> rpc_addresses() const {
    return rpc_ ? rpc_->addresses() : std::vector<endpoint>();
  }
  [[nodiscard]] const std::vector<std::string>& bound_endpoints() const noexcept { return events_->bound_endpoints(); }
  /// Answers what was asked, and ends within 5 s.
  void stop() noexcept;

 private:
  using publisher_map = std::map<std::string, publisher_options>;
  /// The difference between one file and the next in its place.
  struct file_mark {
    std::uint64_t inode = 0, size = 0;
    std::int64_t modified_ns = 0;
    bool operator==(const file_mark&) const = default;
  };

  /// Ports of each pod's events and replays, the first of as many as there are ranks; of replays 0: none.
  struct pod_ports {
    std::uint32_t events = 0, replay = 0, ranks = 0;
  };

  explicit indexer_process(const config::node_config& config);

  [[nodiscard]] result<void> open_discovery(const config::node_config& config);
  [[nodiscard]] result<void> open_tokenizer(const config::node_config& config);
  [[nodiscard]] result<void> open_server(const config::node_config& config, service_parts parts);
  [[nodiscard]] result<void> open_rpc(const config::node_config& config, const service_parts& parts);
  void look_for_publishers();
  void look_for_pods();
  [[nodiscard]] result<void> open_index(const config::index_section& settings);
  [[nodiscard]] batch_sink& sink() noexcept;
  [[nodiscard]] result<std::unique_ptr<indexer_calls>> make_calls(const service_parts& parts);
  void set_scoring(const config::node_config& config);
  void follow(const publisher_map& next_publishers);
  [[nodiscard]] publisher_map wanted_publishers() const;
  [[nodiscard]] static std::optional<file_mark> mark_of(const std::string& path);

  token_processor processor_;
  std::unique_ptr<memory_index> memory_;  ///< null: the index is shared
  std::unique_ptr<shared_index> shared_;  ///< null: it is in memory
  question_totals questions_;
  std::unique_ptr<subscriber> events_;
  std::optional<tokenizer_process> tokenizer_;
  std::unique_ptr<text_tokenizer> texts_;
  std::unique_ptr<http::request_server> server_;
  std::unique_ptr<indexer_rpc> rpc_;        ///< null: none is wanted, or this build has no gRPC
  std::unique_ptr<kubernetes_watch> pods_;  ///< null: none are watched
  pod_ports pod_ports_;
  publisher_map configured_, discovered_, running_, followed_;
  std::string discovery_file_;
  std::optional<file_mark> discovery_mark_;
};

}  // namespace cenote::indexer
