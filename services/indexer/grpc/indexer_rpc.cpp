#include "services/indexer/grpc/indexer_rpc.hpp"

#include <algorithm>
#include <utility>

#include "services/indexer/grpc/calls_pool.hpp"
#include "services/indexer/grpc/pod_watch.hpp"
#include "services/indexer/grpc/rpc_answers.hpp"

namespace cenote::indexer {

namespace {

class served_rpc final : public indexer_rpc {
 public:
  served_rpc(std::vector<std::unique_ptr<indexer_calls>> answering, std::unique_ptr<indexer_calls> watching)
      : pool_(std::move(answering)), watch_(std::move(watching)), answers_(pool_, watch_) {}
  ~served_rpc() override { end(); }

  [[nodiscard]] result<void> open(rpc::rpc_server_options options) {
    auto server = rpc::rpc_server::start(std::move(options), answers_);
    if (!server) return std::unexpected(server.error());
    server_ = std::move(*server);
    return {};
  }

  [[nodiscard]] const std::vector<endpoint>& addresses() const noexcept override { return server_->addresses(); }
  void stop() noexcept override { end(); }

 private:
  void end() noexcept {
    watch_.stop();
    if (server_) server_->stop();
  }

  calls_pool pool_;
  pod_watch watch_;
  rpc_answers answers_;
  std::unique_ptr<rpc::rpc_server> server_;
};

}  // namespace

result<std::unique_ptr<indexer_rpc>> indexer_rpc::start(rpc::rpc_server_options options, std::size_t threads,
                                                        const calls_factory& make_calls) {
  std::vector<std::unique_ptr<indexer_calls>> answering;
  const std::size_t places = std::clamp<std::size_t>(threads, 1, calls_pool::most_places);
  while (answering.size() < places) {
    auto calls = make_calls();
    if (!calls) return std::unexpected(calls.error());
    answering.push_back(std::move(*calls));
  }
  auto watching = make_calls();
  if (!watching) return std::unexpected(watching.error());
  auto served = std::make_unique<served_rpc>(std::move(answering), std::move(*watching));
  if (auto opened = served->open(std::move(options)); !opened) return std::unexpected(opened.error());
  return served;
}

}  // namespace cenote::indexer
