// Connections to managers by address, and single attempts over them.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/error.hpp"
#include "transport/manager/client/call_course.hpp"
#include "transport/manager/client/client_options.hpp"

namespace google::protobuf {
class MessageLite;
}
namespace grpc {
class Channel;
class ChannelCredentials;
}  // namespace grpc

namespace cenote::manager {

/// An answer's header.
struct answer_head {
  answer_code code = answer_code::unspecified;  ///< unspecified: it has none
  std::string message = {};
  std::string leader = {};
};

/// A message of a call, its place for the answer, and how the answer's header is read.
struct call_messages {
  const google::protobuf::MessageLite& request;
  google::protobuf::MessageLite& answer;
  answer_head (*head)(const google::protobuf::MessageLite& answer) = nullptr;
};

/// Nothing is sent before there is a connection, and gRPC itself repeats nothing, so an attempt arrives once at most.
/// Thread-safe.
class channel_table {
 public:
  /// Errors: as of read_password(); invalid_argument: a file of TLS that cannot be used.
  [[nodiscard]] static result<std::unique_ptr<channel_table>> make(const client_options& options);
  channel_table(const channel_table&) = delete;
  channel_table& operator=(const channel_table&) = delete;
  ~channel_table();

  /// Asks HOST:PORT. `path` ends with a null character. Blocks until the answer, or for `limit`.
  [[nodiscard]] call_attempt ask(const std::string& address, std::string_view path, const call_messages& messages,
                                 std::chrono::milliseconds limit);
  /// Ends the connection to an address as soon as no call uses it.
  void drop(const std::string& address);

 private:
  channel_table(client_limits limits, std::string authorization, std::shared_ptr<grpc::ChannelCredentials> security);
  [[nodiscard]] std::shared_ptr<grpc::Channel> channel_to(const std::string& address);

  client_limits limits_;
  std::string authorization_;
  std::shared_ptr<grpc::ChannelCredentials> security_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace cenote::manager
