// Transfers over io_uring, by one thread with a ring of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/error.hpp"
#include "tiers/nvme/io.hpp"
#include "tiers/nvme/path_file.hpp"

namespace cenote::nvme {

/// Small requests that follow each other in the file go to the device as one. Checksums are taken on the engine's
/// thread, while the device works on. What is submitted after stop() returned is forgotten; stop() must not be called
/// from the callback.
class uring_engine final : public io_engine {
 public:
  static constexpr std::size_t most_registered = std::size_t{1} << 30;  ///< bytes of one piece of memory

  /// The file must live longer than the engine. Errors: unsupported (the kernel has no io_uring or forbids it), system.
  [[nodiscard]] static result<std::unique_ptr<uring_engine>> create(const path_file& file,
                                                                    const engine_options& options, callback done);
  /// Whether create() can have a ring. Errors: the same.
  [[nodiscard]] static result<void> check(unsigned queue_depth);
  uring_engine(const uring_engine&) = delete;
  uring_engine& operator=(const uring_engine&) = delete;
  ~uring_engine() override;

  void submit(std::span<const io_request> batch) override;
  void stop() noexcept override;
  [[nodiscard]] std::uint64_t registered_bytes() const noexcept override;
  [[nodiscard]] std::string_view name() const noexcept override { return "io_uring"; }

  /// Pins `memory`; false when the kernel or RLIMIT_MEMLOCK forbids it, when there is no room for another piece, or
  /// when it overlaps one.
  bool register_memory(std::span<std::byte> memory) override;
  void unregister_memory(std::span<std::byte> memory) override;

 private:
  class loop;
  explicit uring_engine(std::unique_ptr<loop> started);

  std::unique_ptr<loop> loop_;
};

}  // namespace cenote::nvme
