// Lookups in this process, without a transport.
#include <google/protobuf/util/json_util.h>

#include <array>
#include <string>
#include <utility>

#include "commands/bench/manager/rows.hpp"

namespace cenote::bench {

namespace {

using namespace manager;
namespace meta = proto::meta;

constexpr std::size_t window_keys = 8;

/// Times lookups of chains in random order; `change` makes the request from one for a whole chain.
template <class Change>
result<samples> time_reads(const row_context& context, chain_kind kind, const Change& change) {
  const std::uint64_t chains = kind == chain_kind::one_spec ? context.chains : wide_chains;
  meta::GetCacheLocationRequest request;
  std::string answer;  // its memory stays, as that of a server's answers does
  std::array<timed_side, 1> sides;
  sides[0].run = [&]() -> result<void> {
    const auto outcome = context.manager.reads().get_location(request, {});
    if (!outcome) return fail(error_code::internal, outcome.error().message);
    (*outcome)(answer_form::wire, answer);
    return {};
  };
  const auto prepare = [&](unsigned round) {
    request = chain_request<meta::GetCacheLocationRequest>(kind, mixed(round) % chains);
    change(request);
    answer.clear();
  };
  if (auto timed = alternate(context, prepare, sides); !timed) return std::unexpected(timed.error());
  return std::move(sides[0].times);
}

/// A lookup from the body to the answer's text, beside json_util's parsing and printing of the same.
result<void> find_as_json(const row_context& context, chain_kind kind, std::string_view name) {
  const std::uint64_t chains = kind == chain_kind::one_spec ? context.chains : wide_chains;
  call_desk& desk = context.manager.desk();
  std::string body, answer;
  meta::GetCacheLocationResponse response;
  std::array<timed_side, 2> sides;
  sides[0].run = [&]() -> result<void> {
    answer.clear();
    (void)desk.call(row_of(manager::rpc::get_cache_location), answer_form::json, body, {},
                    [&](const answer_writer& write) { write(answer_form::json, answer); });
    return {};
  };
  sides[1].run = [&]() -> result<void> {
    meta::GetCacheLocationRequest parsed;
    std::string printed;
    (void)google::protobuf::util::JsonStringToMessage(body, &parsed);
    (void)google::protobuf::util::MessageToJsonString(response, &printed);
    return {};
  };
  const auto prepare = [&](unsigned round) {
    const auto request = chain_request<meta::GetCacheLocationRequest>(kind, mixed(round) % chains);
    body.clear();
    append_message(request, answer_form::json, body);
    (void)response.ParseFromString(context.manager.ask(manager::rpc::get_cache_location, request));
  };
  if (auto timed = alternate(context, prepare, sides); !timed) return timed;
  context.out.add_time(std::string(name) + ", JSON, beside json_util", sides[0].times, sides[1].times,
                       {bound::kind::ratio_at_most, 0.34});
  return {};
}

result<void> find_prefixes(const row_context& context, chain_kind kind, std::string_view name, double limit) {
  const auto times = time_prefixes(context, kind);
  if (!times) return std::unexpected(times.error());
  context.out.add_time(name, *times, {bound::kind::value_at_most, limit});
  return find_as_json(context, kind, name);
}

result<void> find_lengths(const row_context& context) {
  meta::GetCacheLocationLenRequest request;
  std::array<timed_side, 1> sides;
  sides[0].run = [&]() -> result<void> {
    const auto outcome = context.manager.reads().get_length(request, {});
    return outcome ? result<void>() : fail(error_code::internal, outcome.error().message);
  };
  const auto prepare = [&](unsigned round) {
    request = chain_request<meta::GetCacheLocationLenRequest>(chain_kind::one_spec, mixed(round) % context.chains);
  };
  if (auto timed = alternate(context, prepare, sides); !timed) return timed;
  context.out.add_time("number of hits of 1,000 keys", sides[0].times, {bound::kind::value_at_most, 50});
  return {};
}

template <class Change>
result<void> find_otherwise(const row_context& context, std::string_view name, double limit, const Change& change) {
  const auto times = time_reads(context, chain_kind::one_spec, change);
  if (!times) return std::unexpected(times.error());
  context.out.add_time(name, *times, {bound::kind::value_at_most, limit});
  return {};
}

}  // namespace

result<samples> time_prefixes(const row_context& context, chain_kind kind) {
  return time_reads(context, kind, [](auto&) {});
}

result<void> run_lookup_rows(const row_context& context) {
  const auto window = [](auto& request) {
    request.set_query_type(proto::QT_REVERSE_ROLL_SW_MATCH);
    request.set_sw_size(window_keys);
  };
  const auto short_window = [&](auto& request) {
    request.mutable_block_keys()->Truncate(window_keys);
    window(request);
  };
  const auto batch = [](auto& request) { request.set_query_type(proto::QT_BATCH_GET); };
  auto done = find_prefixes(context, chain_kind::one_spec, prefix_row, 120);
  if (done) {
    done = find_prefixes(context, chain_kind::eight_specs, "prefix of 1,000 keys with addresses, eight specs", 200);
  }
  if (done) done = find_lengths(context);
  if (done) {
    done = find_otherwise(context, "prefix of 1,000 keys of which the first is missing", 3,
                          [](auto& request) { request.set_block_keys(0, 1); });
  }
  if (done) done = find_otherwise(context, "window of 8 of 8 keys", 10, short_window);
  if (done) {
    done = find_otherwise(context, "window of 8 of 1,000 keys, of which 992 entries have names alone", 50, window);
  }
  if (done) done = find_otherwise(context, "batch of 1,000 keys with addresses", 150, batch);
  return done;
}

}  // namespace cenote::bench
