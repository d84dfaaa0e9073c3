#include "services/indexer/grpc/question_message.hpp"

#include <cstddef>
#include <string>
#include <string_view>

#include "services/indexer/http/body_reader.hpp"

namespace cenote::indexer {

namespace {

using pod_names = google::protobuf::RepeatedPtrField<std::string>;

result<void> check_count(std::string_view field, std::size_t count, std::size_t limit) {
  if (count <= limit) return {};
  return fail(error_code::invalid_argument, std::string(field) + " has " + std::to_string(count) +
                                                " elements; at most " + std::to_string(limit) + " are allowed");
}

result<void> check_name(std::string_view field, std::string_view name) {
  if (name.size() <= body_reader::longest_name) return {};
  return fail(error_code::invalid_argument, std::string(field) + " has " + std::to_string(name.size()) +
                                                " bytes; at most " + std::to_string(body_reader::longest_name) +
                                                " are allowed");
}

result<void> check_model(std::string_view model) {
  if (!model.empty()) return check_name("model_name", model);
  return fail(error_code::invalid_argument,
              "model_name is missing; right would be the name under which the engines publish, \"Qwen/Qwen3-32B\"");
}

result<void> take_pods(const pod_names& names, call_place& place) {
  place.pods.clear();
  if (auto checked = check_count("pod_identifiers", static_cast<std::size_t>(names.size()), body_reader::most_pods);
      !checked) {
    return checked;
  }
  for (const std::string& each : names) {
    const std::string field = "pod_identifiers[" + std::to_string(place.pods.size()) + "]";
    if (each.empty()) return fail(error_code::invalid_argument, field + " is empty; right would be the name of a pod");
    if (auto checked = check_name(field, each); !checked) return checked;
    place.pods.push_back(each);
  }
  return {};
}

}  // namespace

result<score_question> question_of(const messages::ScoreTokensRequest& request, call_place& place) {
  for (auto checked :
       {check_model(request.model_name()), check_name("lora_name", request.lora_name()),
        check_name("cache_salt", request.cache_salt()),
        check_count("token_ids", static_cast<std::size_t>(request.token_ids_size()), body_reader::most_tokens),
        take_pods(request.pod_identifiers(), place)}) {
    if (!checked) return std::unexpected(checked.error());
  }
  place.extra_keys.clear();
  if (!request.cache_salt().empty()) append_text_list(place.extra_keys, request.cache_salt());
  return score_question{.model = request.model_name(),
                        .tokens = {request.token_ids().data(), static_cast<std::size_t>(request.token_ids_size())},
                        .pods = place.pods,
                        .lora_name = request.lora_name(),
                        .extra_keys = place.extra_keys.view()};
}

result<score_question> question_of(const messages::GetPodScoresRequest& request, call_place& place) {
  for (auto checked : {check_model(request.model_name()), take_pods(request.pod_identifiers(), place)}) {
    if (!checked) return std::unexpected(checked.error());
  }
  return score_question{.model = request.model_name(), .pods = place.pods};
}

result<void> check_keys(const messages::LookupRequest& request) {
  if (request.block_keys().empty()) {
    return fail(error_code::invalid_argument, "block_keys is missing; right would be keys as /v1/keys gives them");
  }
  return check_count("block_keys", static_cast<std::size_t>(request.block_keys_size()), body_reader::most_keys);
}

}  // namespace cenote::indexer
