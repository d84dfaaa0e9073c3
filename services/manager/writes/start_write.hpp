// The begin of a write session.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/manager/writes/write_command.hpp"
#include "services/manager/writes/write_requests.hpp"

namespace cenote::manager {

/// Grants the specs that are missing, in one storage, all or nothing. The keys are marked as being written while the
/// command goes through them, so that no other session is granted them; a rpc_refusal takes the marks back.
class start_write final : public write_command {
 public:
  start_write(start_request request, outcome_receiver<start_grant> receive)
      : request_(std::move(request)), receive_(std::move(receive)) {}

  [[nodiscard]] bool advance(write_parts& parts, write_round& round) override;
  void answer(const result<>& committed) override;
  [[nodiscard]] std::string_view instance() const noexcept override { return request_.instance; }

 private:
  enum class start_phase : std::uint8_t { begin, grant, undo, end };

  [[nodiscard]] rpc_outcome<> begin(write_parts& parts, write_round& round);
  [[nodiscard]] rpc_outcome<> read_groups();
  [[nodiscard]] rpc_outcome<> open_extent(write_parts& parts);
  [[nodiscard]] rpc_outcome<> grant_keys(write_parts& parts, write_round& round);
  [[nodiscard]] rpc_outcome<> grant_key(const write_parts& parts, const cache_key& key, std::uint64_t specs);
  [[nodiscard]] rpc_outcome<std::uint32_t> record_of(const cache_key& key);
  [[nodiscard]] std::uint64_t missing_specs(const write_parts& parts, std::uint32_t record, std::uint64_t specs);
  [[nodiscard]] rpc_outcome<> mark_block(std::uint32_t record, std::uint64_t specs);
  void note_parent();
  [[nodiscard]] rpc_outcome<> end(write_parts& parts);
  void refuse_later(rpc_refusal reason);
  void undo(write_round& round);
  void drop_extent();

  start_request request_;
  outcome_receiver<start_grant> receive_;
  start_phase phase_ = start_phase::begin;
  std::uint64_t number_ = 0;                ///< of the instance
  instance_state* instance_ = nullptr;      ///< looked up anew each round
  std::vector<std::uint64_t> asked_specs_;  ///< specs by key; empty: all specs
  std::vector<std::uint8_t> storages_;
  std::unique_ptr<extent_state> extent_;
  extent_grant grant_;
  start_grant granted_;
  std::size_t next_ = 0;  ///< key
  std::int64_t bytes_ = 0;
  std::uint32_t previous_record_ = no_record;
  bool is_previous_granted_ = false;
  bool is_extent_open_ = false;
  rpc_refusal refusal_;
};

}  // namespace cenote::manager
