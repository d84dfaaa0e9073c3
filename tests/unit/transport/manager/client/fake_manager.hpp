// A manager in this process whose answers are the test's.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/endpoint.hpp"
#include "transport/manager/answer_code.hpp"
#include "transport/manager/proto/admin.grpc.pb.h"
#include "transport/manager/proto/meta.grpc.pb.h"

namespace cenote::manager {

namespace wire = ::kv_cache_manager::proto;

/// The answer to a call.
struct fake_reply {
  answer_code code = answer_code::ok;
  std::string leader = {};
  grpc::StatusCode status = grpc::StatusCode::OK;  ///< another one: without an answer
  bool hangs = false;                              ///< until the call is cancelled
};

inline fake_reply lost_reply() {
  return {.status = grpc::StatusCode::UNAVAILABLE};
}
inline fake_reply follower_reply(std::string leader) {
  return {.code = answer_code::server_not_leader, .leader = std::move(leader)};
}

class fake_manager final {
 public:
  /// The answers in their order, the last one for all further calls.
  explicit fake_manager(std::deque<fake_reply> replies = std::deque<fake_reply>(1))
      : replies_(std::move(replies)), meta_(*this), admin_(*this) {
    start("127.0.0.1:0");
  }
  fake_manager(const fake_manager&) = delete;
  fake_manager& operator=(const fake_manager&) = delete;
  ~fake_manager() { stop(); }

  [[nodiscard]] std::string address() const { return endpoint{.host = "127.0.0.1", .port = port()}.text(); }
  [[nodiscard]] endpoint place() const { return {.host = "127.0.0.1", .port = port()}; }

  [[nodiscard]] int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  /// Of the last call.
  [[nodiscard]] std::string authorization() const {
    const std::lock_guard lock(mutex_);
    return authorization_;
  }
  void set_replies(std::deque<fake_reply> replies) {
    const std::lock_guard lock(mutex_);
    replies_ = std::move(replies);
  }
  /// Waits until a call is there.
  void await_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return calls_ > 0; });
  }
  /// Ends connections and calls at once.
  void stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_ = nullptr;
  }
  /// Starts again at the same port.
  void restart() { start(address()); }

 private:
  template <class Answer>
  grpc::Status answer_to(const grpc::ServerContext& context, Answer& answer) {
    std::unique_lock lock(mutex_);
    ++calls_;
    const auto& headers = context.client_metadata();
    const auto login = headers.find("authorization");
    authorization_ = login == headers.end() ? "" : std::string(login->second.data(), login->second.size());
    const fake_reply reply = replies_.front();
    if (replies_.size() > 1) replies_.pop_front();
    changed_.notify_all();
    while (reply.hangs && !context.IsCancelled()) changed_.wait_for(lock, std::chrono::milliseconds(5));
    if (reply.status != grpc::StatusCode::OK) return {reply.status, "as the test wants it"};
    auto& header = *answer.mutable_header();
    header.mutable_status()->set_code(static_cast<wire::ErrorCode>(reply.code));
    header.mutable_status()->set_message("the message");
    header.set_leader(reply.leader);
    return grpc::Status::OK;
  }

  struct meta_service final : wire::meta::MetaService::Service {
    explicit meta_service(fake_manager& owner) : owner_(owner) {}
    grpc::Status GetCacheLocationLen(grpc::ServerContext* context, const wire::meta::GetCacheLocationLenRequest*,
                                     wire::meta::GetCacheLocationLenResponse* answer) override {
      return owner_.answer_to(*context, *answer);
    }
    grpc::Status StartWriteCache(grpc::ServerContext* context, const wire::meta::StartWriteCacheRequest*,
                                 wire::meta::StartWriteCacheResponse* answer) override {
      answer->set_write_session_id("session");
      return owner_.answer_to(*context, *answer);
    }
    grpc::Status FinishWriteCache(grpc::ServerContext* context, const wire::meta::FinishWriteCacheRequest* request,
                                  wire::meta::CommonResponse* answer) override {
      owner_.masks.push_back(request->success_blocks().SerializeAsString());
      return owner_.answer_to(*context, *answer);
    }
    fake_manager& owner_;
  };
  struct admin_service final : wire::admin::AdminService::Service {
    explicit admin_service(fake_manager& owner) : owner_(owner) {}
    grpc::Status ListStorage(grpc::ServerContext* context, const wire::admin::ListStorageRequest*,
                             wire::admin::ListStorageResponse* answer) override {
      return owner_.answer_to(*context, *answer);
    }
    grpc::Status LeaderDemote(grpc::ServerContext* context, const wire::admin::LeaderDemoteRequest*,
                              wire::admin::CommonResponse* answer) override {
      return owner_.answer_to(*context, *answer);
    }
    fake_manager& owner_;
  };

  void start(const std::string& place) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(place, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&meta_);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
  }
  [[nodiscard]] std::uint16_t port() const { return static_cast<std::uint16_t>(port_); }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<fake_reply> replies_;
  int calls_ = 0;
  int port_ = 0;
  std::string authorization_;
  meta_service meta_;
  admin_service admin_;
  std::unique_ptr<grpc::Server> server_;

 public:
  std::vector<std::string> masks;  ///< of finishes; calls of a test come one after the other
};

}  // namespace cenote::manager
