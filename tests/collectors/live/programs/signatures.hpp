/* Whether a function may be called as another: fit<int(int), kind(kind)>::value.
 *
 * It may if the result and every argument fit: numbers and enums of one size, or pointers to what fits. What we know as
 * void may be any structure there, since we hand it on and never look into it. */
#include <cstddef>
#include <cstdint>
#include <type_traits>

template <class T> constexpr bool is_number = std::is_integral_v<T> || std::is_enum_v<T>;
template <class T> constexpr bool is_unseen = std::is_void_v<T> || std::is_class_v<T>;

template <class Ours, class Theirs> struct fit {
    static constexpr bool value =
        is_number<Ours> && is_number<Theirs> ? sizeof(std::conditional_t<is_number<Ours>, Ours, int>)
                                                   == sizeof(std::conditional_t<is_number<Theirs>, Theirs, int>)
                                             : is_unseen<Ours> && is_unseen<Theirs>;
};
template <class Ours, class Theirs> struct fit<Ours *, Theirs *> : fit<std::remove_cv_t<Ours>, std::remove_cv_t<Theirs>> {};
template <class Result, class... Arguments, class TheirResult, class... TheirArguments>
struct fit<Result(Arguments...), TheirResult(TheirArguments...)> {
    static constexpr bool all()
    {
        if constexpr (sizeof...(Arguments) == sizeof...(TheirArguments))
            return (fit<Result, TheirResult>::value && ... && fit<Arguments, TheirArguments>::value);
        return false;
    }
    static constexpr bool value = all();
};
