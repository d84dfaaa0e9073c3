// Blocks as values of a Redis or Valkey server.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "services/manager/storages/storage_backend.hpp"
#include "transport/redis/waiting_client.hpp"

namespace cenote::manager {

/// Keys are those of the addresses: "instance/0000000100000002/spec/3". Deletions are UNLINK.
class redis_storage final : public storage_backend {
 public:
  static constexpr std::size_t most_keys = 128;  ///< of a command

  /// `url`: of one server, as redis://host:port/db. Errors: invalid_argument, system.
  [[nodiscard]] static result<std::unique_ptr<redis_storage>> make(const std::string& url, const std::string& auth_file,
                                                                   std::chrono::milliseconds timeout);

  [[nodiscard]] result<> remove(const removal_item& item) override;
  [[nodiscard]] std::size_t most_items() const noexcept override { return most_keys; }
  /// One command, so that all have one outcome.
  [[nodiscard]] std::vector<result<>> remove_together(std::span<const removal_item> items) override;
  /// A command each, sent together.
  [[nodiscard]] std::vector<result<bool>> exist_together(std::span<const removal_item> items) override;
  /// The room is `maxmemory`; a server without one has all room.
  [[nodiscard]] result<storage_room> probe() override;

 private:
  redis_storage(redis::waiting_client client, std::chrono::milliseconds timeout)
      : client_(std::move(client)), timeout_(timeout) {}

  [[nodiscard]] result<std::string> ask(const std::string& command);

  redis::waiting_client client_;
  std::chrono::milliseconds timeout_;
};

}  // namespace cenote::manager
