// The calls of MetaService.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "services/manager/service/call_answer.hpp"
#include "services/manager/service/call_counts.hpp"
#include "services/manager/service/call_rights.hpp"
#include "services/manager/service/call_trace.hpp"
#include "services/manager/service/key_question.hpp"
#include "services/manager/service/manager_writer.hpp"
#include "transport/manager/proto/meta.pb.h"
#include "transport/manager/rpc_table.hpp"

namespace cenote::manager {

/// The choice of a storage among those that have a block.
enum class read_choice : std::uint8_t {
  weighted,  ///< drawn once for a request
  first,     ///< in the order of the group
};

/// Answers on one thread at a time; reads at once, the others through the writer. Each thread has its own.
class meta_calls {
 public:
  /// `trace`: null, calls are not written down. All outlive it.
  meta_calls(manager_writer& writer, const call_limits& limits, read_choice choice, call_counts& counts,
             call_trace* trace)
      : writer_(writer), views_(writer.views()), limits_(limits), choice_(choice), counts_(counts), trace_(trace) {}

  /// Errors: the body was not understood; then nothing is answered.
  [[nodiscard]] std::expected<void, body_fault> call(enum rpc name, const call_body& body, const call_rights& rights,
                                                     answer_receiver receive);
  /// The keys of all requests since the last time.
  [[nodiscard]] std::size_t take_key_count() noexcept { return std::exchange(key_count_, 0); }

  // Parts of call(), for requests that are read already; what they give is to be written before the next call.
  [[nodiscard]] rpc_outcome<answer_writer> get_location(const proto::meta::GetCacheLocationRequest& request,
                                                        const call_rights& rights);
  [[nodiscard]] rpc_outcome<answer_writer> get_length(const proto::meta::GetCacheLocationLenRequest& request,
                                                      const call_rights& rights);

 private:
  using instance_pointer = std::shared_ptr<const served_instance>;
  template <class Response>
  using response_writer = std::function<void(Response&)>;

  [[nodiscard]] rpc_outcome<instance_pointer> instance_of(const std::string& id, const call_rights& rights);
  /// Of the storages of a type, or of all.
  [[nodiscard]] static read_order order_of(const served_instance& instance, read_choice choice,
                                           std::optional<storage_type> type = std::nullopt);
  [[nodiscard]] read_order order_of(const served_instance& instance) const { return order_of(instance, choice_); }
  [[nodiscard]] static rpc_outcome<std::uint64_t> asked_specs(
      const instance_terms& terms, const google::protobuf::RepeatedPtrField<std::string>& names);
  /// The keys of a request, which count.
  template <class Request>
  [[nodiscard]] rpc_outcome<std::vector<cache_key>> asked_keys(const Request& request, const instance_terms& terms);
  /// The number of keys of a prefix that ends within the first keys of a long question, which are in `lookup_` then:
  /// the others are not even read. Nothing: it may be longer.
  template <class Request>
  [[nodiscard]] std::optional<std::size_t> short_prefix(const served_instance& instance, const Request& request);
  [[nodiscard]] answer_writer location_writer(instance_pointer instance, std::vector<cache_key> keys,
                                              std::uint64_t specs, std::size_t begin, std::size_t count) const;
  /// Of a lookup with so many keys, which is in `lookup_`.
  void note_uses(const served_instance& instance, std::size_t key_count);
  /// Of one that gave these records.
  void note_uses(const served_instance& instance, std::size_t key_count, std::vector<std::uint32_t> records);

  using type_choice = std::pair<storage_type, read_choice>;
  using type_choices = std::vector<type_choice>;
  /// The types of storages that a request asks for, each once: those of its selectors, else all, the first to read in
  /// front; and the choice of a storage of each.
  [[nodiscard]] rpc_outcome<type_choices> backend_parts(
      const served_instance& instance, const proto::meta::GetCacheLocationsByBackendRequest& request) const;
  [[nodiscard]] rpc_outcome<answer_writer> get_by_backend(const proto::meta::GetCacheLocationsByBackendRequest& request,
                                                          const call_rights& rights);
  [[nodiscard]] rpc_outcome<answer_writer> get_meta(const proto::GetCacheMetaRequest& request,
                                                    const call_rights& rights);
  [[nodiscard]] rpc_outcome<answer_writer> get_instance(const proto::GetInstanceInfoRequest& request,
                                                        const call_rights& rights);
  void register_instance(proto::RegisterInstanceRequest request, const call_rights& rights, answer_receiver receive);
  void start_write(const proto::meta::StartWriteCacheRequest& request, const call_rights& rights,
                   answer_receiver receive);
  void finish_write(const proto::meta::FinishWriteCacheRequest& request, const call_rights& rights,
                    answer_receiver receive);
  void remove(const proto::RemoveCacheRequest& request, const call_rights& rights, answer_receiver receive);
  void trim(const proto::meta::TrimCacheRequest& request, const call_rights& rights, answer_receiver receive);
  /// The entries of a question in `lookup_`; how many keys are before the first entry.
  [[nodiscard]] rpc_outcome<std::size_t> find(const served_instance& instance, query_kind kind,
                                              std::span<const cache_key> keys, std::int64_t window);

  manager_writer& writer_;
  view_reader views_;
  const call_limits limits_;
  const read_choice choice_;
  call_counts& counts_;
  call_trace* trace_;
  lookup_answer lookup_;
  std::size_t key_count_ = 0;
};

}  // namespace cenote::manager
