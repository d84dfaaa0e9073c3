// The calls that are under way.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace cenote::rpc {

class server_call;

/// Keeps calls as long as gRPC uses them, and bounds their number. Thread-safe.
class call_table {
 public:
  explicit call_table(std::size_t limit) noexcept : limit_(limit) {}

  /// False if there are as many as there may be.
  [[nodiscard]] bool add(std::shared_ptr<server_call> call);
  void remove(const server_call& call);
  /// Cancels those that are late.
  void cancel_late();

 private:
  const std::size_t limit_;
  std::mutex mutex_;
  std::unordered_map<const server_call*, std::shared_ptr<server_call>> calls_;
};

}  // namespace cenote::rpc
