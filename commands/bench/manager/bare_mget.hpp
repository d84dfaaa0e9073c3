// MGET of a Redis server by hiredis, with nothing around it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"

struct redisContext;

namespace cenote::bench {

/// 1,000 values of 64 bytes, which it puts there, over TCP on loopback as the faces that stand beside it. Not
/// thread-safe.
class bare_mget {
 public:
  static constexpr std::size_t values = 1'000;
  static constexpr std::size_t value_bytes = 64;

  /// To the server at a Unix socket, which listens at a port then, too. Errors: those of the server; system: no port.
  [[nodiscard]] static result<bare_mget> connect(const std::string& socket);

  /// Asks for all of them. Errors: those of the server; malformed: not all came.
  [[nodiscard]] result<void> call();

 private:
  struct redis_closer {
    void operator()(redisContext* context) const noexcept;
  };

  bare_mget() = default;
  [[nodiscard]] bool is_connected() const noexcept;
  [[nodiscard]] result<int> open_port();
  [[nodiscard]] result<void> send(const std::vector<std::string>& words, std::size_t elements);

  std::unique_ptr<redisContext, redis_closer> context_;
  std::vector<std::string> question_;
};

}  // namespace cenote::bench
