// A call as gRPC sees it.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "transport/grpc/call_handler.hpp"
#include "transport/grpc/call_table.hpp"
#include "transport/grpc/rpc_server.hpp"

namespace cenote::rpc {

/// One operation at a time is under way: reading the request, writing a message, the end. An end that comes meanwhile
/// waits for it. The table keeps the object until gRPC is done with it; its handler may keep it longer.
class server_call final : public grpc::ServerGenericBidiReactor,
                          public open_call,
                          public std::enable_shared_from_this<server_call> {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// All outlive the call, but for `context`, which is gRPC's until OnDone().
  server_call(call_table& table, call_handler& handler, const rpc_server_limits& limits,
              grpc::GenericCallbackServerContext& context);

  /// Begins to read the request.
  void start();

  [[nodiscard]] std::string_view request() const noexcept override;
  [[nodiscard]] call_origin origin() const override;
  void finish(std::string answer) override;
  void refuse(call_status status, const std::string& reason) override;
  bool send(std::string message) override;
  [[nodiscard]] bool is_sending() const noexcept override {
    return (state_.load(std::memory_order_relaxed) & busy) != 0;
  }
  [[nodiscard]] bool is_over() const noexcept override { return is_over_.load(std::memory_order_acquire); }
  using open_call::refuse;

  // Of the table, while the call is in it.
  [[nodiscard]] bool is_late(time_point now) const noexcept;
  void cancel() noexcept { context_.TryCancel(); }

 private:
  static constexpr std::uint8_t busy = 1;    ///< an operation is under way
  static constexpr std::uint8_t ending = 2;  ///< the end is due

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void handle();
  /// Behind an operation; true: the call goes on.
  bool release();
  void end();
  void set_deadline(std::chrono::milliseconds limit) noexcept;
  void clear_deadline() noexcept;

  call_table& table_;
  call_handler& handler_;
  const rpc_server_limits& limits_;
  grpc::GenericCallbackServerContext& context_;
  grpc::ByteBuffer received_, sent_;
  grpc::Slice request_;
  std::atomic<time_point::rep> deadline_;
  std::atomic<std::uint8_t> state_{0};
  std::atomic<bool> is_over_{false};
  grpc::Status status_;                ///< with what stands below, written by the one that has set is_over_
  std::optional<std::string> answer_;  ///< the last message
};

}  // namespace cenote::rpc
