// A call and what answers it, without a type of gRPC's: messages are bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/grpc/call_status.hpp"

namespace cenote::rpc {

/// Where a call comes from.
struct call_origin {
  std::string peer_address{};      ///< of the client, without its port; empty if it has none
  std::string certificate_name{};  ///< the common name of its certificate, which was checked; empty without one
  std::string authorization{};     ///< the header of that name; empty without one
};

/// A call whose request is there. It ends once; whatever follows its end is ignored. Thread-safe.
class open_call {
 public:
  open_call() = default;
  open_call(const open_call&) = delete;
  open_call& operator=(const open_call&) = delete;
  virtual ~open_call() = default;

  /// The request's message, valid as long as this object.
  [[nodiscard]] virtual std::string_view request() const noexcept = 0;
  /// Until the handler returns.
  [[nodiscard]] virtual call_origin origin() const = 0;
  /// Ends the call with its answer.
  virtual void finish(std::string answer) = 0;
  /// Ends the call without one.
  virtual void refuse(call_status status, const std::string& reason) = 0;
  /// Sends a message of a stream. False, and nothing is sent, while the one before is under way, and after the end.
  virtual bool send(std::string message) = 0;
  /// A message of the stream is under way.
  [[nodiscard]] virtual bool is_sending() const noexcept = 0;
  /// It has ended: answered, or the client is gone.
  [[nodiscard]] virtual bool is_over() const noexcept = 0;

  void refuse(const error& reason) { refuse(status_of(reason.code()), reason.message()); }
};

/// Answers calls. Any thread, several at a time; it must not block.
class call_handler {
 public:
  call_handler() = default;
  call_handler(const call_handler&) = delete;
  call_handler& operator=(const call_handler&) = delete;
  virtual ~call_handler() = default;

  /// Whether there is a method of this name, as "/package.Service/Method"; asked before the request is read.
  [[nodiscard]] virtual bool has_method(std::string_view method) const noexcept = 0;
  /// Answers a call here, or keeps it and answers later on any thread. What it throws ends the
  /// call. `method` is valid until it returns.
  virtual void handle(std::string_view method, const std::shared_ptr<open_call>& call) = 0;
};

}  // namespace cenote::rpc
