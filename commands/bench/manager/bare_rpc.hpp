// gRPC with nothing around it: a server that answers the same bytes, and a client that leaves them unread.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <memory>
#include <string>

#include "core/endpoint.hpp"
#include "core/error.hpp"

namespace cenote::bench {

/// Answers each call with some bytes, on gRPC's threads.
class echo_rpc_server {
 public:
  /// On loopback, at a port that is free. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<echo_rpc_server>> start(const std::string& answer);
  echo_rpc_server(const echo_rpc_server&) = delete;
  echo_rpc_server& operator=(const echo_rpc_server&) = delete;
  ~echo_rpc_server();

  [[nodiscard]] const endpoint& address() const noexcept { return address_; }

 private:
  class echo_service final : public grpc::CallbackGenericService {
   public:
    explicit echo_service(const std::string& answer);
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

   private:
    grpc::ByteBuffer answer_;
  };

  explicit echo_rpc_server(const std::string& answer) : service_(answer) {}

  echo_service service_;
  endpoint address_{.host = "127.0.0.1"};
  std::unique_ptr<grpc::Server> server_;
};

/// One call at a time, on the thread that waits for it.
class bare_rpc_client {
 public:
  explicit bare_rpc_client(const endpoint& server);
  bare_rpc_client(const bare_rpc_client&) = delete;
  bare_rpc_client& operator=(const bare_rpc_client&) = delete;
  ~bare_rpc_client();

  /// Errors: system: gRPC's status is not OK.
  [[nodiscard]] result<void> call(const std::string& method, const grpc::ByteBuffer& request);
  /// The bytes of the last answer.
  [[nodiscard]] std::string answer() const;

 private:
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ByteBuffer answer_;
};

}  // namespace cenote::bench
