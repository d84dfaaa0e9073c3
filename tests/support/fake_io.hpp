// A path of the NVMe tier in memory, with faults on demand and completions in the order that a test wants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tiers/nvme/io.hpp"

namespace cenote::nvme {

/// Completes requests at once, or one by one when the test says so; nothing happens by itself. Faults belong to
/// requests in the order of their submission. Thread-safe; the callback runs on the thread that submits, steps,
/// releases or stops, and may submit more.
class fake_io final : public io_engine {
 public:
  enum class pace : std::uint8_t { at_once, stepped };
  enum class order : std::uint8_t {
    like_an_engine,  ///< reads first, else as they came
    newest_first,
  };

  /// `bytes`: of the file, zero at first, with the part before the blocks.
  fake_io(std::uint64_t bytes, pace completing, callback done)
      : pace_(completing), done_(std::move(done)), contents_(static_cast<std::size_t>(bytes)) {}

  /// The next request (of this kind) ends with `error`; nothing is transferred.
  void fail_next(int error, std::optional<io_kind> kind = {});
  /// The next request (of this kind) transfers half of its memory and then ends with EIO.
  void cut_next(std::optional<io_kind> kind = {});
  /// The next request (of this kind) is with the device until release(), whatever the pace.
  void hold_next(std::optional<io_kind> kind = {});
  /// Completes all that are held, in their order.
  void release();
  void set_order(order wanted);

  /// Completes one request that is not held; false when there is none.
  bool step();
  /// Steps until there is none, also for what callbacks submit; says how many.
  std::size_t step_all();
  /// Requests without a completion, with those held.
  [[nodiscard]] std::size_t under_way() const;
  /// The file itself, to look at and to damage. Not while another thread uses the engine.
  [[nodiscard]] std::span<std::byte> contents() noexcept { return contents_; }

  void submit(std::span<const io_request> batch) override;
  /// What is held completes, what waits is cancelled, and later requests are forgotten.
  void stop() noexcept override;
  [[nodiscard]] std::string_view name() const noexcept override { return "memory"; }

 private:
  enum class fault_kind : std::uint8_t { fail, cut, hold };
  struct fault {
    fault_kind what;
    int error;
    std::optional<io_kind> only;
  };
  struct pending {
    io_request request;
    std::optional<fault> broken;
  };

  void add_fault(fault next);
  [[nodiscard]] std::optional<fault> take_fault(io_kind kind);
  [[nodiscard]] std::deque<pending>::iterator next();
  [[nodiscard]] io_completion transfer(const pending& one);

  const pace pace_;
  const callback done_;
  mutable std::mutex mutex_;
  std::vector<std::byte> contents_;
  order order_ = order::like_an_engine;
  std::deque<fault> faults_;
  std::deque<pending> waiting_;
  std::deque<pending> held_;
  bool stepping_ = false;  ///< a callback that submits does not step again: the outer loop goes on
  bool stopped_ = false;
};

}  // namespace cenote::nvme
